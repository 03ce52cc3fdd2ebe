//! Join a run: connect, work, and come back when the connection is lost.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use consilience_engine::site::Own;
use http::uri::PathAndQuery;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;
use tracing::{info, warn};

use crate::certs::{Papers, is_loopback};
use crate::frame::{Frame, PATH, WORDS};
use crate::ticket::{self, Invitation, Ticket};
use crate::worker::{Brings, Did, SiteError, Worker};

/// The first wait after a lost connection, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
const CONNECTING: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(10);
/// How often a site that waits looks at the stop sign.
const GLANCE: Duration = Duration::from_millis(100);
/// Work up to this long is done where it is heard of.
const SHORT: Duration = Duration::from_millis(5);
/// The most bytes that the server may send at once.
const MOST: usize = 256 << 20;

/// By what a server knows a site, and a site its server.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// By their word: for parties on one machine.
    Word,
    /// By certificates on both sides.
    Certificate(Papers),
    /// The server by its certificate, the site by its ticket.
    Ticket {
        /// Whom the server's certificate must be from.
        authority: Certificate,
        /// What the site shows.
        ticket: Ticket,
    },
}

/// How a site joins.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The server, `HOST:PORT`.
    pub server: String,
    /// The name in the server's certificate, where it is not the host.
    pub server_name: Option<String>,
    /// By what the server knows the site.
    pub credentials: Credentials,
    /// How long to look for a server that is away; `None`: for ever.
    pub patience: Option<Duration>,
}

impl JoinOptions {
    /// Follow an invitation.
    pub fn invited(invitation: &Invitation) -> Result<JoinOptions, JoinError> {
        let ticket = Ticket::parse(&invitation.ticket)
            .ok_or_else(|| JoinError::Setup("the invitation holds no ticket".into()))?;
        let credentials =
            Credentials::Ticket { authority: Certificate::from_pem(&invitation.authority), ticket };
        Ok(JoinOptions {
            server: invitation.server.clone(),
            server_name: None,
            credentials,
            patience: None,
        })
    }
}

/// Why a site did not see the run to its end.
#[derive(Debug, Error)]
pub enum JoinError {
    /// It takes no part.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The server is away for too long.
    #[error("the server {server} was not reached for {seconds} seconds: {why}")]
    Away {
        /// The server.
        server: String,
        /// For how long.
        seconds: u64,
        /// What was the matter last.
        why: String,
    },
    /// It cannot connect so.
    #[error("{0}")]
    Setup(String),
    /// Somebody asked to stop.
    #[error("this site was stopped; with --state it can join again")]
    Stopped,
}

/// How a connection ended.
enum End {
    Over { finished: bool },
    Lost { why: String, worked: bool },
}

/// Take part in a run until it is over; `true`: it came to its end.
pub fn join(
    brings: Brings,
    options: &JoinOptions,
    stop: &Arc<AtomicBool>,
) -> Result<bool, JoinError> {
    let endpoint = endpoint(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| JoinError::Setup(format!("no threads: {error}")))?;
    let (options, stop) = (options.clone(), Arc::clone(stop));
    let model =
        if let Own::Model(own) = &brings.data { Some(Arc::clone(&own.model)) } else { None };
    let work = async move {
        let mut worker = Worker::new(brings);
        let end = persist(&endpoint, &options, &mut worker, &stop).await;
        let rested = tokio::task::block_in_place(|| worker.rest());
        end.and_then(|finished| Ok(rested.map(|()| finished)?))
    };
    let fault = |why: &dyn std::fmt::Display| {
        Err(JoinError::Setup(format!("this is a fault of the program: {why}")))
    };
    match model {
        // As a task of the runtime the work is done on the thread that hears of it: nothing
        // crosses threads in a round.
        None => runtime.block_on(runtime.spawn(work)).unwrap_or_else(|failed| fault(&failed)),
        // A model is asked on the one thread where it is at home.
        Some(model) => {
            let (mut work, mut joined) = (Some(work), None);
            model.host(&mut || joined = work.take().map(|work| runtime.block_on(work)));
            joined.unwrap_or_else(|| fault(&"the model does not let its site work"))
        }
    }
}

/// Connect again and again, as long as it makes sense.
pub async fn persist(
    endpoint: &Endpoint,
    options: &JoinOptions,
    worker: &mut Worker,
    stop: &AtomicBool,
) -> Result<bool, JoinError> {
    let (mut wait, mut reached) = (WAITS.0, Instant::now());
    loop {
        match session(endpoint, &options.credentials, worker, stop).await? {
            End::Over { finished } => return Ok(finished),
            End::Lost { .. } if stop.load(Ordering::Relaxed) => return Err(JoinError::Stopped),
            End::Lost { why, worked } => {
                if worked {
                    (wait, reached) = (WAITS.0, Instant::now());
                    warn!(server = %options.server, reason = %why, "the connection is lost: trying \
                        again");
                }
                let seconds = reached.elapsed().as_secs();
                if options.patience.is_some_and(|patience| reached.elapsed() > patience) {
                    if worker.has_finished() {
                        return Ok(true); // only the farewell is missing
                    }
                    return Err(JoinError::Away { server: options.server.clone(), seconds, why });
                }
                if !worked && wait == WAITS.1 {
                    warn!(server = %options.server, seconds, reason = %why, "still looking for the \
                        server");
                }
                or_stop(tokio::time::sleep(wait), stop).await?;
                wait = (wait * 2).min(WAITS.1);
            }
        }
    }
}

/// How the server is reached.
pub fn endpoint(options: &JoinOptions) -> Result<Endpoint, JoinError> {
    let wrong = |text: String| JoinError::Setup(text);
    let host = options.server.rsplit_once(':').map(|(host, _)| host).unwrap_or_default();
    if host.is_empty() {
        return Err(wrong(format!("{}: give the server as HOST:PORT", options.server)));
    }
    let tls = match &options.credentials {
        Credentials::Word if !is_loopback(host) => {
            let text = "is not on this machine: without certificates nobody knows who listens. \
                Give --certs";
            return Err(wrong(format!("{} {text}", options.server)));
        }
        Credentials::Word => None,
        Credentials::Certificate(papers) => Some(
            ClientTlsConfig::new()
                .ca_certificate(papers.authority.clone())
                .identity(papers.identity.clone()),
        ),
        Credentials::Ticket { authority, .. } => {
            Some(ClientTlsConfig::new().ca_certificate(authority.clone()))
        }
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", options.server))
        .map_err(|error| wrong(format!("{}: {error}", options.server)))?
        .connect_timeout(CONNECTING)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true);
    if let Some(tls) = tls {
        let name =
            options.server_name.clone().unwrap_or_else(|| host.trim_matches(['[', ']']).to_owned());
        endpoint = endpoint
            .tls_config(tls.domain_name(name))
            .map_err(|error| wrong(format!("the certificates do not serve: {error}")))?;
    }
    Ok(endpoint)
}

/// One connection, from its first word to its last.
async fn session(
    endpoint: &Endpoint,
    credentials: &Credentials,
    worker: &mut Worker,
    stop: &AtomicBool,
) -> Result<End, JoinError> {
    let lost = |why: String, worked: bool| Ok(End::Lost { why, worked });
    let channel = match or_stop(endpoint.connect(), stop).await? {
        Ok(channel) => channel,
        Err(error) => {
            let why = causes(&error);
            // A certificate does not mend itself.
            if why.contains("certificate") || why.contains("fatal alert") {
                return Err(SiteError::Refused(why).into());
            }
            return lost(why, false);
        }
    };
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(MOST);
    if let Err(error) = grpc.ready().await {
        return lost(causes(&error), false);
    }
    let (to, outward) = mpsc::channel::<Frame>(64);
    let _ = to.send(worker.hello()).await;
    let path = PathAndQuery::from_static(PATH);
    let codec = ProstCodec::<Frame, Frame>::default();
    let mut request = Request::new(ReceiverStream::new(outward));
    if let Credentials::Ticket { ticket, .. } = credentials
        && let Ok(mut text) = MetadataValue::try_from(ticket.text())
    {
        text.set_sensitive(true);
        request.metadata_mut().insert(ticket::METADATA, text);
    }
    let mut inward = match or_stop(grpc.streaming(request, path, codec), stop).await? {
        Ok(response) => response.into_inner(),
        Err(status) if status.code() == Code::PermissionDenied => {
            return Err(SiteError::Refused(status.message().to_owned()).into());
        }
        Err(status) if causes(&status).contains("fatal alert") => {
            return Err(SiteError::Refused(causes(&status)).into());
        }
        Err(status) => return lost(causes(&status), false),
    };
    info!("connected");
    let mut takes_long = true;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(JoinError::Stopped);
        }
        // The timeout is there for the stop sign alone.
        let frame = match tokio::time::timeout(GLANCE, inward.message()).await {
            Err(_) => continue,
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) => return lost("the server closed the connection".into(), true),
            Ok(Err(status)) => return lost(causes(&status), true),
        };
        // Work that takes long must not hold up the connection's own care; moving short work
        // elsewhere would take longer than the work.
        let since = Instant::now();
        let done = if takes_long || frame.kind == WORDS {
            tokio::task::block_in_place(|| worker.handle(&frame))
        } else {
            worker.handle(&frame)
        };
        takes_long = since.elapsed() > SHORT;
        match done {
            Ok(Did::Over { finished }) => {
                let _ = to.send(Worker::farewell()).await;
                settle(to, &mut inward).await;
                return Ok(End::Over { finished });
            }
            Ok(Did::Said(None)) => {}
            Ok(Did::Said(Some(frame))) => {
                if to.send(frame).await.is_err() {
                    return lost("the server closed the connection".into(), true);
                }
            }
            Err(error) => {
                if !matches!(error, SiteError::Refused(_)) {
                    let _ = to.send(Worker::decline(&error)).await;
                    settle(to, &mut inward).await;
                }
                return Err(error.into());
            }
        }
    }
}

/// Wait for something, but not past the stop sign.
async fn or_stop<T>(work: impl Future<Output = T>, stop: &AtomicBool) -> Result<T, JoinError> {
    let stopped = async {
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(GLANCE).await;
        }
    };
    tokio::select! {
        done = work => Ok(done),
        () = stopped => Err(JoinError::Stopped),
    }
}

/// Give the last words a moment to arrive: the server closes the connection then.
async fn settle(to: mpsc::Sender<Frame>, inward: &mut Streaming<Frame>) {
    drop(to);
    let _ = tokio::time::timeout(Duration::from_secs(2), async {
        while let Ok(Some(_)) = inward.message().await {}
    })
    .await;
}

/// An error with all that caused it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
