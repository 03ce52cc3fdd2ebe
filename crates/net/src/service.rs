//! Admit sites: check who they are, then pass frames between them and the conductor.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::StreamingService;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tracing::warn;

use crate::certs::{self, Papers};
use crate::frame::{Frame, MESSAGE, MOST_WORDS, PATH, WORDS};
use crate::talk::{PROTOCOL, Tell, VERSION, strangers};
use crate::ticket::{self, Tickets};

/// How long a newcomer may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many frames may wait for a site that is slow to read.
const QUEUE: usize = 1024;
/// How many frames a site may send beyond those that it was asked for.
const UNASKED: i64 = 16;
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
    to: mpsc::Sender<Result<Frame, Status>>,
    /// How many frames the site may still send.
    credit: Arc<AtomicI64>,
}

impl Link {
    /// A new way to a site: what is sent on it, and how many frames the site may still send.
    pub(crate) fn open(
        generation: u64,
        protocol: u32,
    ) -> (Link, mpsc::Receiver<Result<Frame, Status>>, Arc<AtomicI64>) {
        let (to, outward) = mpsc::channel(QUEUE);
        let credit = Arc::new(AtomicI64::new(0));
        (Link { generation, protocol, to, credit: Arc::clone(&credit) }, outward, credit)
    }

    /// Send a frame; `false`: the connection is gone, or the site does not read.
    pub fn send(&self, frame: Frame, awaits_answer: bool) -> bool {
        if awaits_answer {
            self.credit.fetch_add(1, Ordering::Relaxed);
        }
        self.to.try_send(Ok(frame)).is_ok()
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
}

impl GrpcService {
    /// A service for these sites. Messages longer than `most_message` are refused.
    pub fn new(
        sites: Vec<String>,
        admission: Admission,
        events: mpsc::Sender<Event>,
        most_message: Arc<AtomicUsize>,
    ) -> GrpcService {
        GrpcService(Arc::new(Inner {
            sites,
            admission,
            events,
            generation: AtomicU64::new(0),
            most_message,
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
            if request.uri().path() != PATH {
                return Ok(
                    Status::unimplemented("there is only /consilience.Session/Join").into_http()
                );
            }
            let codec = ProstCodec::<Frame, Frame>::default();
            let most = MOST_WORDS.max(service.0.most_message.load(Ordering::Relaxed)) + 64;
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
            let (client, protocol, stream) = match admit(&inner, request).await {
                Ok(admitted) => admitted,
                Err((client, why)) => {
                    warn!(reason = %why, "refused at the service");
                    let _ = inner.events.send(Event::Refused { client, why: why.clone() }).await;
                    return Err(Status::permission_denied(why));
                }
            };
            let generation = inner.generation.fetch_add(1, Ordering::Relaxed);
            let (link, outward, credit) = Link::open(generation, protocol);
            if inner.events.send(Event::Joined { client, link }).await.is_err() {
                return Err(Status::unavailable("the run is over"));
            }
            tokio::spawn(listen(inner, client, generation, credit, stream));
            Ok(Response::new(ReceiverStream::new(outward)))
        })
    }
}

/// Check a newcomer's first words, and that it is who it says it is.
async fn admit(
    inner: &Inner,
    request: Request<Streaming<Frame>>,
) -> Result<(usize, u32, Streaming<Frame>), (Option<usize>, String)> {
    let certificates = request.peer_certs();
    let ticket = request
        .metadata()
        .get(ticket::METADATA)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let mut stream = request.into_inner();
    let unknown = |why: String| (None, why);
    let first = tokio::time::timeout(PATIENCE, stream.message()).await;
    let first = first
        .map_err(|_| unknown(format!("it said nothing for {} seconds", PATIENCE.as_secs())))?;
    let first = first.map_err(|status| {
        unknown(format!("its first frame cannot be read: {}", status.message()))
    })?;
    let first = first.ok_or_else(|| unknown("it left without a word".into()))?;
    let (client, site, protocol) = greeted(&inner.sites, &first)?;
    let certificate = certificates.as_deref().and_then(|chain| chain.first());
    inner
        .admission
        .check(&site, certificate, ticket.as_deref())
        .map_err(|why| (Some(client), why))?;
    Ok((client, protocol, stream))
}

/// Check a newcomer's greeting: which site it names, and which version of the protocol is spoken
/// with it.
pub(crate) fn greeted(
    sites: &[String],
    first: &Frame,
) -> Result<(usize, String, u32), (Option<usize>, String)> {
    let unknown = |why: String| (None, why);
    let Tell::Hello { version, site, protocol } = first.read().map_err(unknown)? else {
        return Err(unknown("its first words were no greeting".into()));
    };
    let Some(client) = sites.iter().position(|known| *known == site) else {
        let site: String = site.chars().take(80).collect();
        return Err(unknown(format!(
            "this run has no site \"{site}\": its sites are {}",
            sites.join(", ")
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

/// Carry what a site says to the conductor, until the connection ends or the site says too much.
async fn listen(
    inner: Arc<Inner>,
    client: usize,
    generation: u64,
    credit: Arc<AtomicI64>,
    mut stream: Streaming<Frame>,
) {
    let why = loop {
        let frame = match stream.message().await {
            Ok(Some(frame)) => frame,
            Ok(None) => break "it closed the connection".to_owned(),
            Err(status) => break format!("the connection broke: {}", status.message()),
        };
        if let Some(why) = too_much(&frame, inner.most_message.load(Ordering::Relaxed), &credit) {
            let floods = why == FLOOD;
            if inner
                .events
                .send(Event::Refused { client: Some(client), why: why.clone() })
                .await
                .is_err()
            {
                return;
            }
            if floods {
                break why;
            }
            continue;
        }
        if inner.events.send(Event::Heard { client, generation, frame }).await.is_err() {
            return;
        }
    };
    let _ = inner.events.send(Event::Left { client, generation, why }).await;
}
