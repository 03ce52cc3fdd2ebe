//! Join a run: connect, work, and come back when the connection is lost.

use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use consilience_engine::site::Own;
use http::uri::PathAndQuery;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;
use tracing::{info, warn};

use crate::certs::{Papers, is_loopback, name_of_site};
use crate::frame::{Frame, PATH, WORDS};
use crate::talk::{Farewell, How};
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
/// How long a site looks for a server whose run was over when it last heard of it.
const RECALL: Duration = Duration::from_secs(10);
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
    Over,
    Lost { why: String, worked: bool },
}

/// Take part in a run until it is over; `true`: it came to its end.
pub fn join(
    brings: Brings,
    options: &JoinOptions,
    stop: &Arc<AtomicBool>,
) -> Result<bool, JoinError> {
    attend(brings, options, stop).map(|farewell| farewell.how == How::Finished)
}

/// Take part in a run until it is over, and say how it ended.
pub fn attend(
    brings: Brings,
    options: &JoinOptions,
    stop: &Arc<AtomicBool>,
) -> Result<Farewell, JoinError> {
    let endpoint = endpoint(options)?;
    let mut brings = brings;
    if let Credentials::Certificate(papers) = &options.credentials {
        brings.papers.get_or_insert_with(|| papers.clone());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| JoinError::Setup(format!("no threads: {error}")))?;
    let (options, stop) = (options.clone(), Arc::clone(stop));
    let model =
        if let Own::Model(own) = &brings.data { Some(Arc::clone(&own.model)) } else { None };
    let keepsake = brings.state.as_deref().map(|state| Keepsake::of(state, &brings.site));
    let work = async move {
        let mut worker = Worker::new(brings);
        let end = last(&endpoint, &options, &mut worker, keepsake.as_ref(), &stop).await;
        let rested = tokio::task::block_in_place(|| worker.rest());
        end.and_then(|farewell| Ok(rested.map(|()| farewell)?))
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

/// What a site keeps of a run that is over: one that is started again after the server has gone
/// does not look for it for ever.
struct Keepsake {
    file: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    server: String,
    farewell: Farewell,
}

impl Keepsake {
    fn of(state: &Path, site: &str) -> Keepsake {
        Keepsake { file: state.join(format!("{}.over.json", name_of_site(site))) }
    }

    /// How the last run at this server ended.
    fn read(&self, server: &str) -> Option<Farewell> {
        let kept: Kept = serde_json::from_slice(&std::fs::read(&self.file).ok()?).ok()?;
        (kept.server == server).then_some(kept.farewell)
    }

    fn write(&self, server: &str, farewell: &Farewell) -> std::io::Result<()> {
        let kept = Kept { server: server.to_owned(), farewell: farewell.clone() };
        let temporary = self.file.with_extension("tmp");
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(&kept).unwrap_or_default())?;
        file.sync_all()?;
        std::fs::rename(&temporary, &self.file)
    }

    fn forget(&self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Connect again and again, as long as it makes sense; `true`: the run came to its end.
pub async fn persist(
    endpoint: &Endpoint,
    options: &JoinOptions,
    worker: &mut Worker,
    stop: &AtomicBool,
) -> Result<bool, JoinError> {
    Ok(last(endpoint, options, worker, None, stop).await?.how == How::Finished)
}

/// The same for a site that may keep how it ended.
async fn last(
    endpoint: &Endpoint,
    options: &JoinOptions,
    worker: &mut Worker,
    keepsake: Option<&Keepsake>,
    stop: &AtomicBool,
) -> Result<Farewell, JoinError> {
    let (mut wait, mut reached) = (WAITS.0, Instant::now());
    let mut recalled = keepsake.and_then(|keepsake| keepsake.read(&options.server));
    loop {
        let over = |farewell: &Farewell| {
            let kept = keepsake.map(|keepsake| keepsake.write(&options.server, farewell));
            if let Some(Err(error)) = kept {
                warn!(%error, "that the run is over cannot be kept");
            }
        };
        match session(endpoint, &options.credentials, worker, &over, stop).await? {
            End::Over => return Ok(worker.ended()),
            End::Lost { .. } if stop.load(Ordering::Relaxed) => return Err(JoinError::Stopped),
            End::Lost { why, worked } => {
                if worked {
                    (wait, reached) = (WAITS.0, Instant::now());
                    warn!(server = %options.server, reason = %why, "the connection is lost: trying \
                        again");
                    // A server that only tells that it is over welcomes nobody.
                    if worker.is_welcomed() {
                        recalled = None;
                        keepsake.iter().for_each(|keepsake| keepsake.forget());
                    }
                }
                let seconds = reached.elapsed().as_secs();
                if let Some(farewell) = recalled.as_ref().filter(|_| reached.elapsed() > RECALL) {
                    info!(server = %options.server, "the server is gone, and the run was over when \
                        this site last heard of it");
                    return Ok(farewell.clone());
                }
                if options.patience.is_some_and(|patience| reached.elapsed() > patience) {
                    if worker.has_finished() {
                        let how = How::Finished; // only the farewell is missing
                        return Ok(Farewell { how, says: String::new() });
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
    over: &impl Fn(&Farewell),
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
            // It would send the same again and again.
            Ok(Err(status)) if status.code() == Code::OutOfRange => {
                let error = SiteError::Disagree(format!(
                    "the server's message is too long for a site: {}",
                    status.message()
                ));
                let _ = to.send(Worker::decline(&error)).await;
                settle(to, &mut inward).await;
                return Err(error.into());
            }
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
            Ok(Did::Over { .. }) => {
                over(&worker.ended()); // before the server lets this site go
                let _ = to.send(Worker::farewell()).await;
                settle(to, &mut inward).await;
                return Ok(End::Over);
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
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
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
