//! A board without a GPU: kernels as C++, block after block and thread after thread.

use std::hash::{Hash, Hasher};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use libloading::{Library, Symbol};

use crate::DeviceError;
use crate::board::{Board, Boards, KERNELS, NARROW};

/// Which arguments each kernel takes.
fn arguments(kernel: &str) -> &'static str {
    match kernel.split('_').next() {
        Some("conv") => "Conv",
        Some("dense") => "Dense",
        Some("norm") => "Norm",
        Some("loss") => "Loss",
        Some("step") => "Step",
        Some("narrow") => "Narrow",
        _ => "Image",
    }
}

/// A program that starts kernels by name.
fn source() -> String {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let include = |name: &str| format!("#include \"{}\"\n", kernels.join(name).display());
    let mut text = include("host.h") + &include("net.cu");
    text += "extern \"C\" bool start(const char *name, u32 x, u32 y, u32 threads, const void *a) {
        gridDim = {x, y, 1};
        blockDim = {threads, 1, 1};
        auto each = [&](auto kernel) {
            for (u32 j = 0; j < y; j++)
                for (u32 i = 0; i < x; i++) {
                    blockIdx = {i, j, 0};
                    kernel();
                }
            return true;
        };\n";
    for kernel in KERNELS.into_iter().chain([NARROW]) {
        let takes = arguments(kernel);
        text += &format!(
            "if (!std::strcmp(name, \"{kernel}\")) \
             return each([&] {{ {kernel}(*(const {takes} *)a); }});\n"
        );
    }
    text + "return false;\n}\n"
}

/// The library, built once for all tests; `None`: there is no compiler.
fn library() -> Option<Arc<Library>> {
    static BUILT: OnceLock<Option<Arc<Library>>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
            let mut hash = std::hash::DefaultHasher::new();
            source().hash(&mut hash);
            for file in ["host.h", "random.h", "net.cu", "tiles.h"] {
                std::fs::read(kernels.join(file)).unwrap().hash(&mut hash);
            }
            let folder = std::env::temp_dir();
            let named = |end: &str| folder.join(format!("consilience-{:x}{end}", hash.finish()));
            let library = named(".so");
            if !library.exists() {
                // others may be at it: each builds its own, and the last one stays
                let own = std::process::id();
                let built = |end: &str| named(&format!("-{own}{end}"));
                std::fs::write(built(".cpp"), source()).unwrap();
                let compiled = Command::new("c++")
                    .args(["-O1", "-std=c++17", "-ffp-contract=off", "-march=native"])
                    // a kernel that is called as a function of libc is not that function
                    .args(["-Wno-unknown-pragmas", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-o"])
                    .arg(built(".so"))
                    .arg(built(".cpp"))
                    .output()
                    .ok()?;
                let said = String::from_utf8_lossy(&compiled.stderr);
                assert!(compiled.status.success(), "{said}");
                std::fs::remove_file(built(".cpp")).unwrap();
                std::fs::rename(built(".so"), &library).unwrap();
            }
            // SAFETY: the library has nothing that runs when it is loaded.
            Some(Arc::new(unsafe { Library::new(&library) }.unwrap()))
        })
        .clone()
}

/// Makes such boards.
#[derive(Debug)]
pub(crate) struct Emulated(Arc<Library>);

impl Emulated {
    /// `None`: there is no compiler.
    pub(crate) fn new() -> Option<Self> {
        library().map(Emulated)
    }
}

impl Boards for Emulated {
    fn board(&self) -> Result<Box<dyn Board>, DeviceError> {
        Ok(Box::new(Here {
            library: Arc::clone(&self.0),
            taken: Vec::new(),
            learns: false,
            routine: Vec::new(),
        }))
    }
}

/// Its memory is this machine's; what is allocated is not a number before it is written.
#[derive(Debug)]
struct Here {
    library: Arc<Library>,
    taken: Vec<Box<[u64]>>,
    learns: bool,
    routine: Vec<Started>,
}

/// A kernel with its blocks, threads and arguments.
type Started = (&'static str, (u32, u32), (u32, u32), Vec<u8>);

impl Board for Here {
    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        self.taken.push(vec![u64::MAX; bytes.div_ceil(8) + 2].into_boxed_slice());
        let start = self.taken.last().unwrap().as_ptr() as u64;
        Ok(start.next_multiple_of(16))
    }

    fn free(&mut self, address: u64) -> Result<(), DeviceError> {
        self.taken.retain(|taken| (taken.as_ptr() as u64).next_multiple_of(16) != address);
        Ok(())
    }

    fn write(&mut self, to: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: there is room for these bytes, which nothing else refers to.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        Ok(())
    }

    fn read(&mut self, from: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: there are as many bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len())
        };
        Ok(())
    }

    fn write_all(&mut self, to: u64, vectors: Vec<&[u8]>) -> Result<(), DeviceError> {
        (0u64..).zip(vectors).try_for_each(|(k, v)| self.write(to + k * v.len() as u64, v))
    }

    fn read_all(&mut self, from: u64, vectors: Vec<&mut [u8]>) -> Result<(), DeviceError> {
        (0u64..).zip(vectors).try_for_each(|(k, v)| self.read(from + k * v.len() as u64, v))
    }

    fn aside(&mut self, _: bool) -> Result<(), DeviceError> {
        Ok(())
    }

    fn join(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn learn(&mut self) -> Result<(), DeviceError> {
        self.learns = true;
        self.routine.clear();
        Ok(())
    }

    fn learnt(&mut self) -> Result<(), DeviceError> {
        self.learns = false;
        Ok(())
    }

    fn repeat(&mut self) -> Result<(), DeviceError> {
        let routine = std::mem::take(&mut self.routine);
        for (kernel, blocks, threads, arguments) in &routine {
            // SAFETY: those who let it be learnt answer for it.
            unsafe { self.launch(kernel, *blocks, *threads, arguments) }?;
        }
        self.routine = routine;
        Ok(())
    }

    unsafe fn launch(
        &mut self,
        kernel: &'static str,
        blocks: (u32, u32),
        (threads, shared): (u32, u32),
        arguments: &[u8],
    ) -> Result<(), DeviceError> {
        if self.learns {
            self.routine.push((kernel, blocks, (threads, shared), arguments.to_vec()));
            return Ok(());
        }
        type Start = unsafe extern "C" fn(*const u8, u32, u32, u32, *const u8) -> bool;
        // the kernels' indices of threads and blocks are global
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _one = ONE_AT_A_TIME.lock();
        let name = std::ffi::CString::new(kernel).unwrap();
        // SAFETY: the function has this type; the arguments are the caller's to get right.
        let started = unsafe {
            let start: Symbol<'_, Start> = self.library.get("start").unwrap();
            let (name, arguments) = (name.as_ptr().cast(), arguments.as_ptr());
            start(name, blocks.0, blocks.1, threads, arguments)
        };
        assert!(started, "there is no kernel {kernel}");
        Ok(())
    }
}
