//! Admit sites: check who they are, then pass frames between them and the conductor.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use rustls_pki_types::CertificateDer;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::{StreamingService, UnaryService};
use tonic::transport::server::TlsConnectInfo;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tracing::warn;

use crate::admission::{Seldom, Visitor};
use crate::certs::{self, Papers};
use crate::control;
use crate::frame::{ASIDE, Frame, MESSAGE, MOST_WORDS, PATH, WORDS};
use crate::revoked::{self, Revoked};
use crate::status::Status as RunStatus;
use crate::talk::{PROTOCOL, Tell, VERSION, strangers};
use crate::ticket::{self, Tickets};

/// How long a newcomer may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a newcomer waits for another connection of its site to end, and how often it looks.
const SUCCESSION: Duration = Duration::from_secs(1);
const GLANCE: Duration = Duration::from_millis(5);
/// The most bytes of an operator's order.
const MOST_ORDER: usize = 4 << 10;
/// How often the certificate of a connected site is looked up, and what is said of a revoked one.
const LOOK: Duration = Duration::from_secs(2);
const REVOKED: &str = "was revoked: get a new one";
/// The most bytes of a frame besides what it carries.
const HEADING: usize = 64;
/// How many frames may wait for a site that is slow to read.
const QUEUE: usize = 1024;
/// How many frames a site may send beyond those that it was asked for.
const UNASKED: i64 = 16;
/// How many sites are named to one that the run does not know.
const MOST_NAMED: usize = 20;
/// What is said of a site that sends more than that.
const FLOOD: &str = "a flood: it sends more than it was asked for";

/// What happens at the service.
#[derive(Debug)]
pub enum Event {
    /// A site came in.
    Joined {
        /// Which.
        client: usize,
        /// The way to it.
        link: Link,
    },
    /// A site said something.
    Heard {
        /// Which.
        client: usize,
        /// On which connection.
        generation: u64,
        /// What.
        frame: Frame,
    },
    /// A connection ended.
    Left {
        /// Whose.
        client: usize,
        /// Which connection.
        generation: u64,
        /// Why.
        why: String,
    },
    /// A site sends more, or longer, than it may: nothing more is read from this connection.
    Excess {
        /// Which.
        client: usize,
        /// On which connection.
        generation: u64,
        /// What.
        why: String,
    },
    /// Somebody was turned away, or said what nobody asked for.
    Refused {
        /// Who, if it is known.
        client: Option<usize>,
        /// Why.
        why: String,
    },
}

/// The way to one site.
#[derive(Clone, Debug)]
pub struct Link {
    /// The number of the connection: what comes from an older one is not heard.
    pub generation: u64,
    /// Which version of the protocol the site speaks with us.
    pub protocol: u32,
    /// How many bytes of a message the connection takes at most, if that is fixed.
    pub(crate) most: Option<usize>,
    to: mpsc::Sender<Result<Frame, Status>>,
    /// How many frames the site may still send.
    credit: Arc<AtomicI64>,
    /// Whoever listens to the site hears no more when this is gone.
    _held: Arc<oneshot::Sender<()>>,
}

/// The service's end of a [`Link`].
#[derive(Debug)]
pub(crate) struct FarEnd {
    pub(crate) outward: mpsc::Receiver<Result<Frame, Status>>,
    pub(crate) credit: Arc<AtomicI64>,
    /// Ends when the conductor lets go of the link.
    pub(crate) gone: oneshot::Receiver<()>,
}

impl Link {
    /// A new way to a site: what is sent on it, and how many frames the site may still send.
    pub(crate) fn open(generation: u64, protocol: u32, most: Option<usize>) -> (Link, FarEnd) {
        let (to, outward) = mpsc::channel(QUEUE);
        let (held, gone) = oneshot::channel();
        let credit = Arc::new(AtomicI64::new(0));
        let far = FarEnd { outward, credit: Arc::clone(&credit), gone };
        (Link { generation, protocol, most, to, credit, _held: Arc::new(held) }, far)
    }

    /// Send a frame; `false`: the connection is gone, or the site does not read.
    pub fn send(&self, frame: Frame, awaits_answer: bool) -> bool {
        if awaits_answer {
            self.credit.fetch_add(1, Ordering::Relaxed);
        }
        self.to.try_send(Ok(frame)).is_ok()
    }

    /// Say that the server will be back, and why it goes: the site waits for it.
    pub fn close(&self, why: &str) {
        let _ = self.to.try_send(Err(Status::unavailable(why)));
    }
}

/// By what a site is known.
#[derive(Clone, Debug)]
pub enum Admission {
    /// By its word: for parties on one machine.
    Word,
    /// By its certificate; the server's own papers.
    Certificates(Papers),
    /// By the ticket that it was given for this run.
    Tickets(Tickets),
}

impl Admission {
    /// Check that a site is who it says it is.
    fn check(
        &self,
        site: &str,
        certificate: Option<&CertificateDer<'_>>,
        ticket: Option<&str>,
    ) -> Result<(), String> {
        match self {
            Admission::Word => Ok(()),
            Admission::Certificates(_)
                if certificate.is_some_and(|end| certs::belongs_to(end, site)) =>
            {
                Ok(())
            }
            Admission::Certificates(_) => {
                let name = certs::name_of_site(site);
                Err(format!(
                    "the certificate is not one of the site \"{site}\": it is not valid for the \
                     DNS name {name}"
                ))
            }
            Admission::Tickets(tickets) => tickets.check(site, ticket),
        }
    }
}

impl Admission {
    /// Check that somebody may hold and end the run.
    fn check_operator(&self, certificate: Option<&CertificateDer<'_>>) -> Result<(), String> {
        match self {
            Admission::Word => Ok(()), // on this machine alone
            Admission::Certificates(_) if certificate.is_some_and(certs::is_operators) => Ok(()),
            Admission::Certificates(_) => Err(format!(
                "the certificate is not an operator's: it is not valid for the DNS name {}",
                certs::OPERATOR
            )),
            Admission::Tickets(_) => {
                Err("a run with tickets is controlled by the program that serves it".into())
            }
        }
    }
}

/// The gRPC service.
#[derive(Clone, Debug)]
pub struct GrpcService(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sites: Vec<String>,
    admission: Admission,
    events: mpsc::Sender<Event>,
    generation: AtomicU64,
    most_message: Arc<AtomicUsize>,
    run: Arc<RunStatus>,
    revoked: Option<Revoked>,
    /// Whose certificates that end soon were named.
    ending: Seldom<usize>,
    /// Which sites are connected.
    present: Vec<AtomicBool>,
    /// The number of each site.
    numbers: Numbers,
}

impl Inner {
    /// The most bytes that a frame may carry now.
    fn most_bytes(&self) -> usize {
        MOST_WORDS.max(self.most_message.load(Ordering::Relaxed))
    }

    fn is_revoked(&self, certificate: &CertificateDer<'_>) -> bool {
        self.revoked.as_ref().is_some_and(|revoked| revoked.has(certificate))
    }
}

/// A site that is connected: nobody else comes in by its name.
struct Presence {
    inner: Arc<Inner>,
    client: usize,
}

impl Presence {
    /// Take a site's place once it is free; `None`: it is not.
    async fn take(inner: &Arc<Inner>, client: usize) -> Option<Presence> {
        let since = Instant::now();
        while inner.present[client].swap(true, Ordering::AcqRel) {
            if since.elapsed() > SUCCESSION {
                return None;
            }
            tokio::time::sleep(GLANCE).await;
        }
        Some(Presence { inner: Arc::clone(inner), client })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.inner.present[self.client].store(false, Ordering::Release);
    }
}

impl GrpcService {
    /// A service for the sites of a run. Messages longer than `most_message` are refused.
    pub fn new(
        run: Arc<RunStatus>,
        admission: Admission,
        revoked: Option<Revoked>,
        events: mpsc::Sender<Event>,
        most_message: Arc<AtomicUsize>,
    ) -> GrpcService {
        let sites = run.sites();
        GrpcService(Arc::new(Inner {
            present: sites.iter().map(|_| AtomicBool::new(false)).collect(),
            numbers: Numbers::new(&sites),
            sites,
            admission,
            events,
            generation: AtomicU64::new(0),
            most_message,
            run,
            revoked,
            ending: Seldom::default(),
        }))
    }
}

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl tower_service::Service<http::Request<Body>> for GrpcService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            if request.uri().path() == control::PATH {
                let codec = ProstCodec::<Frame, Frame>::default();
                let mut grpc =
                    tonic::server::Grpc::new(codec).max_decoding_message_size(MOST_ORDER);
                return Ok(grpc.unary(service, request).await);
            }
            if request.uri().path() != PATH {
                return Ok(Status::unimplemented("there are only Join and Control").into_http());
            }
            let codec = ProstCodec::<Frame, Frame>::default();
            let most = service.0.most_bytes() + HEADING;
            let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(most);
            Ok(grpc.streaming(service, request).await)
        })
    }
}

impl StreamingService<Frame> for GrpcService {
    type Response = Frame;
    type ResponseStream = ReceiverStream<Result<Frame, Status>>;
    type Future = Answer<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Frame>>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let visitor = visitor(&request);
            let (client, protocol, stream, certificate) = match admit(&inner, request).await {
                Ok(admitted) => admitted,
                Err(TurnedAway { client, why, code }) => {
                    if let Some(visitor) = &visitor {
                        visitor.complain(&why);
                    }
                    let _ = inner.events.send(Event::Refused { client, why: why.clone() }).await;
                    return Err(Status::new(code, why));
                }
            };
            if let Some(paused) = inner.run.paused() {
                // no refusal: it tries again
                return Err(Status::unavailable(format!("{}: it waits", paused.why)));
            }
            let Some(presence) = Presence::take(&inner, client).await else {
                let why = format!(
                    "site \"{}\" is connected already: does a second process run there?",
                    inner.sites[client]
                );
                let event = Event::Refused { client: None, why: why.clone() };
                let _ = inner.events.send(event).await;
                return Err(Status::unavailable(why));
            };
            let generation = inner.generation.fetch_add(1, Ordering::Relaxed);
            let most = inner.most_bytes();
            let (link, far) = Link::open(generation, protocol, Some(most));
            if inner.events.send(Event::Joined { client, link }).await.is_err() {
                return Err(Status::unavailable("the run is over"));
            }
            visitor.iter().for_each(Visitor::admit);
            let FarEnd { outward, credit, gone } = far;
            let visit = Visit { presence, generation, credit, gone, certificate };
            tokio::spawn(listen(visit, stream));
            Ok(Response::new(ReceiverStream::new(outward)))
        })
    }
}

/// An operator's order.
impl UnaryService<Frame> for GrpcService {
    type Response = Frame;
    type Future = Answer<Result<Response<Frame>, Status>>;

    fn call(&mut self, request: Request<Frame>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let certificates = certificates(&request);
            let certificate = certificates.as_deref().and_then(|chain| chain.first());
            let mut checked = inner.admission.check_operator(certificate);
            if certificate.is_some_and(|certificate| inner.is_revoked(certificate)) {
                checked = Err(format!("the operator's certificate {REVOKED}"));
            }
            if let Err(why) = checked {
                visitor(&request).iter().for_each(|visitor| visitor.complain(&why));
                let _ = inner.events.send(Event::Refused { client: None, why: why.clone() }).await;
                return Err(Status::permission_denied(why));
            }
            let order = request.into_inner().read().map_err(Status::invalid_argument)?;
            Ok(Response::new(Frame::words(ASIDE, &control::obey(&inner.run, &order))))
        })
    }
}

/// Who came with a request.
fn visitor<T>(request: &Request<T>) -> Option<Visitor> {
    let extensions = request.extensions();
    let by_tls = extensions.get::<TlsConnectInfo<Visitor>>().map(TlsConnectInfo::get_ref);
    by_tls.or_else(|| extensions.get::<Visitor>()).cloned()
}

/// The certificates of whoever came.
fn certificates<T>(request: &Request<T>) -> Option<Arc<Vec<CertificateDer<'static>>>> {
    request.extensions().get::<TlsConnectInfo<Visitor>>()?.peer_certs()
}

/// Who was admitted, the version of the protocol, what it says, and its certificate.
type Admitted = (usize, u32, Streaming<Frame>, Option<CertificateDer<'static>>);

/// Somebody who is not let in.
struct TurnedAway {
    client: Option<usize>,
    why: String,
    /// Whether it may try again.
    code: Code,
}

impl From<(Option<usize>, String)> for TurnedAway {
    /// For good.
    fn from((client, why): (Option<usize>, String)) -> TurnedAway {
        TurnedAway { client, why, code: Code::PermissionDenied }
    }
}

/// Check a newcomer's first words, and that it is who it says it is.
async fn admit(inner: &Inner, request: Request<Streaming<Frame>>) -> Result<Admitted, TurnedAway> {
    let certificates = certificates(&request);
    let ticket = request
        .metadata()
        .get(ticket::METADATA)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let mut stream = request.into_inner();
    let unknown = |why: String| (None, why);
    let first = tokio::time::timeout(PATIENCE, stream.message()).await;
    // a machine that is busy, or a network that is slow: it tries again
    let first = first.map_err(|_| TurnedAway {
        client: None,
        why: format!("it said nothing for {} seconds", PATIENCE.as_secs()),
        code: Code::Unavailable,
    })?;
    let first = first.map_err(|status| {
        unknown(format!("its first frame cannot be read: {}", status.message()))
    })?;
    let first = first.ok_or_else(|| unknown("it left without a word".into()))?;
    let (client, site, protocol) = greeted(&inner.numbers, &first)?;
    let certificate = certificates.as_deref().and_then(|chain| chain.first());
    inner
        .admission
        .check(&site, certificate, ticket.as_deref())
        .map_err(|why| (Some(client), why))?;
    if let Some(certificate) = certificate {
        if inner.is_revoked(certificate) {
            let why = format!("the certificate of site \"{site}\" {REVOKED}");
            return Err((Some(client), why).into());
        }
        if let Some(ends) = revoked::ends_soon(certificate, SystemTime::now())
            && inner.ending.due(&client).is_some()
        {
            warn!(%site, "its certificate {ends}: make new ones");
        }
    }
    if inner.run.is_left_out(client) {
        let why = format!("the operator goes on without site \"{site}\"");
        return Err((Some(client), why).into());
    }
    Ok((client, protocol, stream, certificate.cloned()))
}

/// The numbers of sites by their names.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    of: BTreeMap<String, usize>,
    /// The first names, for whoever has none of them.
    some: String,
}

impl Numbers {
    pub(crate) fn new(sites: &[String]) -> Numbers {
        let mut some = sites[..sites.len().min(MOST_NAMED)].join(", ");
        if sites.len() > MOST_NAMED {
            some.push_str(&format!(" and {} more", sites.len() - MOST_NAMED));
        }
        let of = sites.iter().enumerate().map(|(number, site)| (site.clone(), number)).collect();
        Numbers { of, some }
    }
}

/// Check a newcomer's greeting: which site it names, and which version of the protocol is spoken
/// with it.
pub(crate) fn greeted(
    sites: &Numbers,
    first: &Frame,
) -> Result<(usize, String, u32), (Option<usize>, String)> {
    let unknown = |why: String| (None, why);
    let Tell::Hello { version, site, protocol } = first.read().map_err(unknown)? else {
        return Err(unknown("its first words were no greeting".into()));
    };
    let Some(client) = sites.of.get(&site).copied() else {
        let site: String = site.chars().take(80).collect();
        return Err(unknown(format!(
            "this run has no site \"{site}\": its sites are {}",
            sites.some
        )));
    };
    let Some(common) = PROTOCOL.common(protocol) else {
        let version: String = version.chars().take(40).collect();
        let why = strangers(PROTOCOL, protocol);
        let why = format!("site \"{site}\", version {version}, server {VERSION}: {why}");
        return Err((Some(client), why));
    };
    Ok((client, site, common))
}

/// Why a frame is more than a site may send, if it is. It counts against what the site was asked
/// for.
pub(crate) fn too_much(frame: &Frame, most_message: usize, credit: &AtomicI64) -> Option<String> {
    let most = match frame.kind {
        WORDS => MOST_WORDS,
        MESSAGE => most_message,
        _ => 0,
    };
    if frame.body.len() > most {
        return Some(format!(
            "a frame of kind {} with {} bytes, where {most} is the most",
            frame.kind,
            frame.body.len()
        ));
    }
    (credit.fetch_sub(1, Ordering::Relaxed) <= -UNASKED).then(|| FLOOD.to_owned())
}

/// A site that is connected.
struct Visit {
    presence: Presence,
    generation: u64,
    credit: Arc<AtomicI64>,
    gone: oneshot::Receiver<()>,
    certificate: Option<CertificateDer<'static>>,
}

/// Carry what a site says to the conductor, until the connection ends, the conductor cuts it off,
/// its certificate is revoked or the site says too much.
async fn listen(visit: Visit, mut stream: Streaming<Frame>) {
    let Visit { presence, generation, credit, mut gone, certificate } = visit;
    let (inner, client) = (&presence.inner, presence.client);
    let mut looks = tokio::time::interval(LOOK);
    let why = loop {
        let frame = tokio::select! {
            frame = stream.message() => frame,
            _ = &mut gone => return, // the conductor knows why
            _ = looks.tick() => {
                if certificate.as_ref().is_some_and(|certificate| inner.is_revoked(certificate)) {
                    let why = format!("its certificate {REVOKED}");
                    let _ = inner.events.send(Event::Excess { client, generation, why }).await;
                    let _ = gone.await;
                    return;
                }
                continue;
            }
        };
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => break "it closed the connection".to_owned(),
            // It would send the same again and again.
            Err(status) if status.code() == Code::OutOfRange => {
                let why = format!("its message is too long: {}", status.message());
                let _ = inner.events.send(Event::Excess { client, generation, why }).await;
                let _ = gone.await;
                return;
            }
            Err(status) => break format!("the connection broke: {}", status.message()),
        };
        if let Some(why) = too_much(&frame, inner.most_message.load(Ordering::Relaxed), &credit) {
            let _ = inner.events.send(Event::Excess { client, generation, why }).await;
            let _ = gone.await;
            return;
        }
        if inner.events.send(Event::Heard { client, generation, frame }).await.is_err() {
            return;
        }
    };
    let _ = inner.events.send(Event::Left { client, generation, why }).await;
}
