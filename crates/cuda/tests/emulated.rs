//! Kernels give the bits of the core: run as C++, thread after thread, where there is a compiler.
#![allow(clippy::unwrap_used)] // a test may panic
#![allow(clippy::print_stderr)] // what is skipped is said

use std::path::{Path, PathBuf};
use std::process::Command;

use consilience_core::rng::{ClientId, Noise, Purpose, SERVER, Seed};
use consilience_core::step::{langevin, noise_scale};

const PARTIES: [ClientId; 3] = [ClientId(0), ClientId(7), SERVER];

/// A program that runs the kernel on what stands in a file, and writes what comes out.
const MAIN: &str = r#"
#include <cstdio>
#include <vector>
int main(int, char **argv) {
    std::FILE *in = std::fopen(argv[1], "rb"), *out = std::fopen(argv[2], "wb");
    unsigned long long dim, parties, tag;
    double step, sigma;
    auto read = [&](void *to, size_t size, size_t n) {
        return std::fread(to, size, n, in) == n;
    };
    bool ok = in && out && read(&dim, 8, 1) && read(&parties, 8, 1) && read(&tag, 8, 1)
        && read(&step, 8, 1) && read(&sigma, 8, 1);
    if (!ok) return 1;
    std::vector<unsigned int> keys(8 * parties), clients(parties);
    std::vector<double> x(dim * parties), drift(dim * parties);
    ok = read(keys.data(), 4, keys.size()) && read(clients.data(), 4, clients.size())
        && read(x.data(), 8, x.size()) && read(drift.data(), 8, drift.size());
    if (!ok) return 1;
    blockDim = {128, 1, 1};
    unsigned int blocks = (unsigned int)(((dim + 63) / 64 * 4 + 127) / 128);
    gridDim = {blocks, (unsigned int)parties, 1};
    for (unsigned int b = 0; b < blocks; b++)
        for (unsigned int p = 0; p < parties; p++)
            for (unsigned int t = 0; t < 128; t++) {
                blockIdx = {b, p, 0};
                threadIdx = {t, 0, 0};
                langevin(x.data(), drift.data(), dim, keys.data(), clients.data(), tag, step,
                         sigma);
            }
    std::fwrite(x.data(), 8, x.size(), out);
    return std::fclose(out);
}
"#;

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

#[test]
fn a_langevin_step_has_the_bits_of_the_core() {
    let folder = std::env::temp_dir().join(format!("consilience-cuda-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("main.cpp"), folder.join("main"));
    let include = |name: &str| format!("#include \"{}\"\n", kernels().join(name).display());
    std::fs::write(&source, include("host.h") + &include("langevin.cu") + MAIN).unwrap();
    let built = Command::new("c++")
        .args(["-O1", "-std=c++17", "-ffp-contract=off", "-Wno-unknown-pragmas", "-o"])
        .arg(&program)
        .arg(&source)
        .output();
    let Ok(built) = built else {
        eprintln!("skipped: there is no C++ compiler (c++) here");
        return;
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    // Lengths that end within a block, within a group and at its end.
    for (dim, iteration) in [(65, 0), (200, 3), (256, 1 << 40), (5000, 12_345)] {
        let (seed, step, temperature) = (Seed::new(9).chain(2), 3e-3f64, 0.7);
        let n = dim * PARTIES.len();
        let x: Vec<f64> = (0..n).map(|k| (k as f64 * 0.37).sin() * 3.0).collect();
        let drift: Vec<f64> = (0..n).map(|k| (k as f64 * 0.11).cos() * 40.0).collect();
        let tag = iteration | ((Purpose::Noise as u64) << 56);
        let mut input = Vec::new();
        for word in [dim as u64, PARTIES.len() as u64, tag] {
            input.extend(word.to_le_bytes());
        }
        input.extend(step.to_le_bytes());
        input.extend(noise_scale(step, temperature).to_le_bytes());
        let keys = PARTIES.iter().flat_map(|_| seed.key());
        input.extend(keys.chain(PARTIES.map(|p| p.0)).flat_map(u32::to_le_bytes));
        input.extend(x.iter().chain(&drift).flat_map(|v| v.to_le_bytes()));
        let (given, taken) = (folder.join("in"), folder.join("out"));
        std::fs::write(&given, input).unwrap();
        let ran = Command::new(&program).arg(&given).arg(&taken).status().unwrap();
        assert!(ran.success());
        let bytes = std::fs::read(&taken).unwrap();
        let (eights, _) = bytes.as_chunks::<8>();
        let found: Vec<u64> = eights.iter().map(|eight| u64::from_le_bytes(*eight)).collect();

        let mut expected = x;
        for (p, x) in expected.chunks_exact_mut(dim).enumerate() {
            let mut noise = Noise::new(seed, PARTIES[p], dim);
            let mut z = Vec::new();
            for start in (0..dim).step_by(1024) {
                z.extend_from_slice(noise.at(iteration, start..dim.min(start + 1024)));
            }
            langevin(x, step, temperature, &drift[p * dim..(p + 1) * dim], &z);
        }
        let expected: Vec<u64> = expected.iter().map(|x| x.to_bits()).collect();
        assert_eq!(found, expected, "{dim} numbers");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
