//! Admit connections, but few at a time that have not said who they are, and none for long; log
//! what is turned away, but seldom.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::transport::server::Connected;
use tracing::warn;

/// How long somebody may take to be admitted: TLS, headers, the first words.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How many connections of one address, and of all together, may be on their way to be admitted,
/// where nobody says otherwise.
pub const AT_ONCE: usize = 32;
const IN_ALL: usize = 512;
/// How long to wait after the system could give no connection.
const BACK_OFF: Duration = Duration::from_millis(200);
/// How often one address is named in the log.
const SELDOM: Duration = Duration::from_secs(60);
/// How many addresses are remembered for that.
const REMEMBERED: usize = 1024;

/// Something that is said once a minute for each of those whom it is about.
#[derive(Debug)]
pub struct Seldom<K>(Mutex<BTreeMap<K, (Instant, u64)>>);

impl<K: Ord> Default for Seldom<K> {
    fn default() -> Self {
        Seldom(Mutex::default())
    }
}

impl<K: Ord + Clone> Seldom<K> {
    /// Whether it is time to speak of somebody: how often that was left out since the last time.
    pub fn due(&self, about: &K) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match said.get_mut(about) {
            Some((last, silent)) if last.elapsed() < SELDOM => {
                *silent += 1;
                None
            }
            Some((last, silent)) => {
                *last = Instant::now();
                Some(std::mem::take(silent))
            }
            None => {
                if said.len() >= REMEMBERED {
                    said.retain(|_, (last, _)| last.elapsed() < SELDOM);
                }
                // Among thousands that are all new, nobody is named.
                (said.len() < REMEMBERED).then(|| {
                    said.insert(about.clone(), (Instant::now(), 0));
                    0
                })
            }
        }
    }
}

/// What admits connections to a server.
#[derive(Debug)]
pub struct Admission {
    /// How many of each address are on their way, and how many may be.
    waiting: Mutex<BTreeMap<IpAddr, usize>>,
    at_once: usize,
    said: Seldom<IpAddr>,
}

impl Admission {
    fn new(at_once: usize) -> Admission {
        Admission { waiting: Mutex::default(), at_once, said: Seldom::default() }
    }

    /// Take somebody in; `None`: too many of that address, or of all, are on their way.
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Visitor> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = waiting.values().sum();
        let own = waiting.entry(address).or_insert(0);
        if *own >= self.at_once || all >= IN_ALL.max(self.at_once) {
            let own = *own;
            waiting.retain(|_, count| *count > 0);
            drop(waiting);
            self.complain(address, &format!("{own} connections of it have not said who they are"));
            return None;
        }
        *own += 1;
        let settled = AtomicBool::new(false);
        Some(Visitor(Arc::new(Admittance { admission: Arc::clone(self), address, settled })))
    }

    fn leave(&self, address: IpAddr) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = waiting.get_mut(&address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                waiting.remove(&address);
            }
        }
    }

    /// Log why somebody is turned away, once a minute for each address.
    pub fn complain(&self, address: IpAddr, why: &str) {
        if let Some(silent) = self.said.due(&address) {
            warn!(%address, reason = %why, others_since = silent, "refused before admission");
        }
    }
}

/// Somebody who is not admitted yet.
#[derive(Clone, Debug)]
pub struct Visitor(Arc<Admittance>);

#[derive(Debug)]
struct Admittance {
    admission: Arc<Admission>,
    address: IpAddr,
    /// Whether it was admitted, or turned away by name.
    settled: AtomicBool,
}

impl Visitor {
    /// It has said who it is: it may stay.
    pub fn admit(&self) {
        if !self.0.settled.swap(true, Ordering::Relaxed) {
            self.0.admission.leave(self.0.address);
        }
    }

    /// Log why it is turned away.
    pub fn complain(&self, why: &str) {
        self.0.admission.complain(self.0.address, why);
    }

    fn is_admitted(&self) -> bool {
        self.0.settled.load(Ordering::Relaxed)
    }
}

impl Drop for Admittance {
    fn drop(&mut self) {
        if !self.settled.load(Ordering::Relaxed) {
            self.admission.leave(self.address);
            let why = "it left or was cut off before it was admitted: no certificate of ours, \
                another protocol, or silence";
            self.admission.complain(self.address, why);
        }
    }
}

/// What gives connections.
pub trait Listener: Unpin {
    /// The next one.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>>;

    /// Where it listens.
    fn address(&self) -> io::Result<SocketAddr>;
}

impl Listener for TcpListener {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        TcpListener::poll_accept(self, cx)
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

/// Connections as they come.
pub struct Incoming<L = TcpListener> {
    listener: L,
    admission: Arc<Admission>,
    /// How long somebody may take to be admitted.
    patience: Duration,
    rest: Option<Pin<Box<Sleep>>>,
}

impl<L: Listener> Incoming<L> {
    /// Those that a listener takes.
    pub fn new(listener: L) -> Self {
        let admission = Arc::new(Admission::new(AT_ONCE));
        Incoming { listener, admission, patience: PATIENCE, rest: None }
    }

    /// The same that lets so many of one address be on their way.
    pub fn at_once(self, most: usize) -> Self {
        Incoming { admission: Arc::new(Admission::new(most)), ..self }
    }

    /// The same with another patience.
    pub fn with_patience(self, patience: Duration) -> Self {
        Incoming { patience, ..self }
    }

    fn taken(&self, stream: TcpStream, from: SocketAddr) -> Option<Guest> {
        let visitor = self.admission.enter(from.ip())?;
        let _ = stream.set_nodelay(true);
        let patience = Some(Box::pin(tokio::time::sleep(self.patience)));
        Some(Guest { stream, visitor, patience })
    }
}

impl<L: Listener> Stream for Incoming<L> {
    type Item = io::Result<Guest>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(rest) = &mut self.rest {
                ready!(rest.as_mut().poll(cx));
                self.rest = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, from)) => {
                    if let Some(guest) = self.taken(stream, from) {
                        return Poll::Ready(Some(Ok(guest)));
                    }
                }
                Err(error) => {
                    // such as no file left: to try again at once would take all the time there is
                    let here = self.listener.address().map(|address| address.ip());
                    if let Ok(here) = here {
                        self.admission
                            .complain(here, &format!("no connection can be taken: {error}"));
                    }
                    self.rest = Some(Box::pin(tokio::time::sleep(BACK_OFF)));
                }
            }
        }
    }
}

/// The connection of a visitor. It breaks if the visitor is not admitted in time.
pub struct Guest {
    stream: TcpStream,
    visitor: Visitor,
    /// Until it is admitted.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Connected for Guest {
    type ConnectInfo = Visitor;

    fn connect_info(&self) -> Visitor {
        self.visitor.clone()
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.patience.is_some() && self.visitor.is_admitted() {
            self.patience = None;
        }
        if let Some(patience) = &mut self.patience
            && patience.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_named_twice_a_minute_and_memory_is_bounded() {
        let seldom = Seldom::default();
        assert_eq!((seldom.due(&0), seldom.due(&0), seldom.due(&1)), (Some(0), None, Some(0)));
        let named = (2..10_000).filter(|who| seldom.due(who).is_some()).count();
        assert_eq!(named, REMEMBERED - 2);
        assert_eq!(seldom.0.lock().unwrap().len(), REMEMBERED);
    }

    /// Who says nothing is cut off in time, and makes room; who is admitted may be silent.
    #[test]
    fn whoever_is_silent_is_cut_off() {
        use tokio::io::AsyncReadExt;
        use tokio_stream::StreamExt;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut incoming = Incoming::new(listener).with_patience(Duration::from_millis(30));
            let admission = Arc::clone(&incoming.admission);
            let _silent = TcpStream::connect(address).await.unwrap();
            let mut guest = incoming.next().await.unwrap().unwrap();
            let cut = tokio::time::timeout(PATIENCE, guest.read(&mut [0; 8])).await.unwrap();
            assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::TimedOut);
            drop(guest);
            assert!(admission.waiting.lock().unwrap().is_empty());
            let _known = TcpStream::connect(address).await.unwrap();
            let mut guest = incoming.next().await.unwrap().unwrap();
            guest.connect_info().admit();
            let mut room = [0; 8];
            let waits = guest.read(&mut room);
            assert!(tokio::time::timeout(Duration::from_millis(90), waits).await.is_err());
        });
    }

    /// Many sites of one address, behind one router, say, may come at once where that is said.
    #[test]
    fn as_many_of_one_address_wait_at_once_as_may() {
        let here = IpAddr::from([10, 0, 0, 1]);
        for most in [1, 2000] {
            let admission = Arc::new(Admission::new(most));
            let visitors: Vec<Visitor> =
                (0..most).map(|_| admission.enter(here).unwrap()).collect();
            assert!(admission.enter(here).is_none(), "{most}");
            drop(visitors);
            assert!(admission.enter(here).is_some());
        }
    }

    /// A listener that the system gives no connection for a while.
    struct Starved {
        listener: TcpListener,
        left: std::sync::atomic::AtomicU32,
    }

    impl Listener for Starved {
        fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
            let one_less = |left: u32| left.checked_sub(1);
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                return Poll::Ready(Err(io::Error::other("no file left")));
            }
            TcpListener::poll_accept(&self.listener, cx)
        }

        fn address(&self) -> io::Result<SocketAddr> {
            self.listener.local_addr()
        }
    }

    /// Where the system gives no connection the server waits before it tries again, and goes on.
    #[test]
    fn errors_of_the_system_are_waited_out() {
        use tokio_stream::StreamExt;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut incoming = Incoming::new(Starved { listener, left: 3.into() });
            let _known = TcpStream::connect(address).await.unwrap();
            let since = Instant::now();
            incoming.next().await.unwrap().unwrap();
            assert!(since.elapsed() >= 3 * BACK_OFF, "{:?}", since.elapsed());
        });
    }

    #[test]
    fn few_of_one_address_wait_at_once_and_whoever_is_admitted_makes_room() {
        let (admission, here) = (Arc::new(Admission::new(AT_ONCE)), IpAddr::from([10, 0, 0, 1]));
        let mut visitors: Vec<Visitor> =
            (0..AT_ONCE).map(|_| admission.enter(here).unwrap()).collect();
        assert!(admission.enter(here).is_none());
        assert!(admission.enter(IpAddr::from([10, 0, 0, 2])).is_some(), "another address may");
        visitors[0].admit();
        visitors[0].admit(); // once is enough
        visitors.push(admission.enter(here).unwrap());
        assert!(admission.enter(here).is_none());
        visitors.pop(); // it left
        assert!(admission.enter(here).is_some());
        drop(visitors);
        assert!(admission.waiting.lock().unwrap().is_empty());
    }
}
