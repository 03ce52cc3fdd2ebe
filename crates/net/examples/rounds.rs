//! Measure rounds a second over loopback with TLS: three processes, then a hundred streams of one
//! process; beside them a bare echo of the same sizes over the same stack; what it costs server and
//! sites to keep their state, and a site to keep what it says.
//!
//!     cargo run --release -p consilience-net --example rounds
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a measurement may panic, and prints

use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc as channel};
use std::time::{Duration, Instant, SystemTime};

use consilience_core::model::{Isotropic, Model, Prior};
use consilience_core::protocol::{Client, Output, Server as Protocol, Statement};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::config::{Config, Source};
use consilience_engine::run::Progress;
use consilience_engine::site::{Own, names};
use consilience_engine::store::{DurableClient, Folder};
use consilience_net::certs::{self, Papers};
use consilience_net::frame::{Frame, PATH};
use consilience_net::join::{Credentials, JoinOptions, endpoint, persist};
use consilience_net::serve::{Admission, ServeOptions, Stage, bind, serve};
use consilience_net::status::Status;
use consilience_net::worker::{Brings, Worker};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::StreamingService;
use tonic::transport::{Server, ServerTlsConfig, server::TcpIncoming};
use tonic::{Request, Response, Streaming};
use tonic_prost::ProstCodec;

const DIM: usize = 1000;
/// How often rates are measured that are compared: one after the other, so that what else the
/// machine does hits all of them.
const TIMES: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(keeps @ ("sites" | "reserving" | "syncing")) => {
            return sites(keeps, Path::new(&arguments[2]), &arguments[3], &arguments[4..]);
        }
        Some("echo") => return echo(Path::new(&arguments[2]), &arguments[3]),
        _ => {}
    }
    let folder = std::env::temp_dir().join(format!("consilience-rounds-{}", std::process::id()));
    let all: Vec<String> = (0..100).map(|k| format!("s{k}")).collect();
    certs::make(&folder, &all, &["localhost".into()], SystemTime::now()).unwrap();
    println!(
        "{DIM} parameters at 32 bits, uncompressed, TLS with certificates on both sides, one chain"
    );
    let bare = echoed(&folder, 3, 4000);
    println!("bare echo, 3 processes:   {bare:>8.0} rounds/s");
    let three = sampled((&folder, &folder), "sites", (3, 1, 1), 6000);
    println!("lmc, 3 processes:         {three:>8.0} rounds/s   {:.2} of the echo", three / bare);
    let hundred = sampled((&folder, &folder), "sites", (100, 100, 1), 400);
    println!(
        "lmc, 100 streams of one:  {hundred:>8.0} rounds/s   {:.0} answers/s",
        100.0 * hundred
    );
    println!("\nlmc, 3 processes, 4 chains, all of them together, the best of {TIMES} in turn:");
    let kinds = [
        ("sites", "nothing is kept", 3000),
        ("reserving", "--state everywhere, --reserve 1000", 3000),
        ("syncing", "--state everywhere", 300),
    ];
    let mut best = [0.0f64; 3];
    for time in 0..TIMES {
        let here = folder.join(format!("time-{time}")); // state of its own
        std::fs::create_dir_all(&here).unwrap();
        for ((keeps, _, iterations), best) in kinds.iter().zip(&mut best) {
            *best = best.max(sampled((&folder, &here), keeps, (3, 1, 4), *iterations));
        }
    }
    for ((_, name, _), rate) in kinds.iter().zip(best) {
        println!("{name:<36} {rate:>8.0} rounds/s   {:.2} of the first", rate / best[0]);
    }
    durable(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What it costs a site to keep what it says: one answer with each promise.
fn durable(folder: &Path) {
    let rows: Arc<dyn Model> =
        Arc::new(Isotropic::new((0..DIM).map(|k| (k % 7) as f64).collect(), DIM).unwrap());
    let target = Target::new(vec![rows], Prior::Flat, Placement::Server, 1.0).unwrap();
    let recipe = Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.001)));
    let keys = Keys::simulation(Seed::new(1), 0);
    println!("\none answer of a site that keeps its state:");
    for (name, rounds) in [
        ("kept in memory alone", 20_000u32),
        ("written, not synced", 20_000),
        ("reserved 1000 ahead", 20_000),
        ("synced each", 500),
    ] {
        let client = || {
            Client::new(
                recipe.client(&target, ClientId(0), keys).unwrap(),
                recipe.format(&target, keys).unwrap(),
            )
        };
        let disk = || Folder::open(&folder.join(name)).unwrap();
        let mut fleeting = client();
        let mut kept = match name {
            "kept in memory alone" => None,
            "written, not synced" => {
                Some(DurableClient::open(disk(), client()).unwrap().0.without_sync())
            }
            "reserved 1000 ahead" => {
                Some(DurableClient::reserving(disk(), client(), 1000).unwrap().0)
            }
            _ => Some(DurableClient::open(disk(), client()).unwrap().0),
        };
        let machine = recipe.server(&target, &vec![0.0; DIM], keys).unwrap();
        let mut server = Protocol::new(
            machine,
            Statement::new([("a", "b")]),
            1,
            recipe.format(&target, keys).unwrap(),
        );
        let (mut spent, mut answers, mut answer) = (Duration::ZERO, 0, Vec::new());
        while answers < rounds {
            if let Some(Output::Send { to, bytes }) = server.poll() {
                answer.clear();
                let since = Instant::now();
                match &mut kept {
                    None => drop(fleeting.handle(&bytes, &mut answer).unwrap()),
                    Some(kept) => drop(kept.handle(&bytes, &mut answer).unwrap()),
                }
                spent += since.elapsed();
                server.handle(to, &answer).unwrap();
                answers += 1;
            }
        }
        println!("{name:<24} {:>9.1} microseconds", 1e6 * spent.as_secs_f64() / f64::from(rounds));
    }
}

fn start(role: &str, folder: &Path, state: &Path, port: u16, names: &[String]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(role).arg(folder).arg(format!("localhost:{port}")).args(names);
    command.env(STATE, state).spawn().unwrap()
}

/// Where sites keep their state.
const STATE: &str = "ROUNDS_STATE";

/// Rounds a second of plain Langevin Monte Carlo, over all chains: with certificates from one
/// folder and state in another, so many clients, so many of them in one process, so many chains.
fn sampled(
    (folder, state): (&Path, &Path),
    keeps: &str,
    (clients, in_one, chains): (usize, usize, u64),
    iterations: u64,
) -> f64 {
    let row = |k: usize| {
        (0..DIM).map(|j| format!("{:.2}", ((k + j) % 7) as f64)).collect::<Vec<_>>().join(", ")
    };
    let mut text = "seeds = \"simulation\"\n[target]\nmodel = \"isotropic\"\n".to_owned();
    for k in 0..clients {
        text.push_str(&format!("[[client]]\nname = \"s{k}\"\nrows = [[{}]]\n", row(k)));
    }
    text.push_str(&format!(
        "[sampler]\nname = \"lmc\"\nstep = 0.001\n[run]\nchains = {chains}\n\
        iterations = {iterations}\nthin = 1000\n"
    ));
    let config =
        Config::parse(Source { file: "rounds.toml".into(), folder: ".".into(), text }).unwrap();
    let options = ServeOptions {
        deadline: Some(Duration::from_secs(60)),
        state: (keeps != "sites").then(|| state.join(format!("{keeps}-server"))),
        ..ServeOptions::new(Admission::Certificates(Papers::load(&folder.join("server")).unwrap()))
    };
    let status = Arc::new(Status::new(&names(&config).unwrap(), Arc::new(Progress::default())));
    let (tell, told) = channel::channel();
    let serving = std::thread::spawn(move || {
        let tell = |stage: Stage<'_>| {
            if let Stage::Listening(address) = stage {
                tell.send(address.port()).unwrap();
            }
        };
        serve(
            bind("127.0.0.1:0".parse().unwrap()).unwrap(),
            &config,
            &options,
            &status,
            tell,
            |served| served,
        )
    });
    let port = told.recv().unwrap();
    let all: Vec<String> = (0..clients).map(|k| format!("s{k}")).collect();
    let mut children: Vec<Child> =
        all.chunks(in_one).map(|names| start(keeps, folder, state, port, names)).collect();
    let served = serving.join().unwrap().unwrap();
    children.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
    (iterations * chains) as f64 / served.seconds
}

/// Sites of one process, each with a stream of its own.
fn sites(keeps: &str, folder: &Path, server: &str, names: &[String]) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let state = std::env::var_os(STATE).map_or_else(|| folder.to_path_buf(), Into::into);
    let tasks: Vec<_> = names
        .iter()
        .map(|name| {
            let credentials = Credentials::Certificate(Papers::load(&folder.join(name)).unwrap());
            let options = JoinOptions {
                server: server.into(),
                server_name: None,
                credentials,
                patience: Some(Duration::from_secs(30)),
            };
            let brings = Brings {
                allows_simulation: true,
                state: (keeps != "sites").then(|| state.join(format!("{keeps}-{name}"))),
                reserve: (keeps == "reserving").then_some(1000),
                papers: Some(Papers::load(&folder.join(name)).unwrap()),
                ..Brings::new(name, Own::Stated)
            };
            runtime.spawn(async move {
                let endpoint = endpoint(&options).unwrap();
                persist(&endpoint, &options, &mut Worker::new(brings), &AtomicBool::new(false))
                    .await
                    .unwrap()
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| assert!(runtime.block_on(task).unwrap()));
}

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Line = (mpsc::Sender<Result<Frame, tonic::Status>>, Streaming<Frame>);

/// A server that hands every stream to whoever drives it.
#[derive(Clone)]
struct Bare(mpsc::Sender<Line>);

impl tower_service::Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Result<Self::Response, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let bare = self.clone();
        Box::pin(async move {
            Ok(tonic::server::Grpc::new(ProstCodec::<Frame, Frame>::default())
                .streaming(bare, request)
                .await)
        })
    }
}

impl StreamingService<Frame> for Bare {
    type Response = Frame;
    type ResponseStream = ReceiverStream<Result<Frame, tonic::Status>>;
    type Future = Answer<Result<Response<Self::ResponseStream>, tonic::Status>>;

    fn call(&mut self, request: Request<Streaming<Frame>>) -> Self::Future {
        let hand = self.0.clone();
        Box::pin(async move {
            let (to, outward) = mpsc::channel(64);
            let _ = hand.send((to, request.into_inner())).await;
            Ok(Response::new(ReceiverStream::new(outward)))
        })
    }
}

/// Rounds a second where every client sends back what it gets.
fn echoed(folder: &Path, clients: usize, rounds: u32) -> f64 {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let papers = Papers::load(&folder.join("server")).unwrap();
    let work = runtime.spawn({
        let folder = folder.to_path_buf();
        async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let (hand, mut lines) = mpsc::channel(8);
            let tls =
                ServerTlsConfig::new().identity(papers.identity).client_ca_root(papers.authority);
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            tokio::spawn(
                Server::builder()
                    .tls_config(tls)
                    .unwrap()
                    .serve_with_incoming(Bare(hand), incoming),
            );
            let mut children: Vec<Child> = (0..clients)
                .map(|k| start("echo", &folder, &folder, port, &[format!("s{k}")]))
                .collect();
            let mut open = Vec::new();
            for _ in 0..clients {
                let (to, mut inward) = lines.recv().await.unwrap();
                inward.message().await.unwrap();
                open.push((to, inward));
            }
            let frame = Frame::message(0, 0, vec![1; 4 * DIM + 3]);
            let mut started = Instant::now();
            for round in 0..rounds + 200 {
                if round == 200 {
                    started = Instant::now(); // warm by now
                }
                for (to, _) in &open {
                    to.send(Ok(frame.clone())).await.unwrap();
                }
                for (_, inward) in &mut open {
                    inward.message().await.unwrap().unwrap();
                }
            }
            let seconds = started.elapsed().as_secs_f64();
            drop(open);
            tokio::task::block_in_place(|| {
                children.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()))
            });
            f64::from(rounds) / seconds
        }
    });
    runtime.block_on(work).unwrap()
}

/// Send back what comes.
fn echo(folder: &Path, server: &str) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let credentials = Credentials::Certificate(Papers::load(&folder.join("s0")).unwrap());
    let options =
        JoinOptions { server: server.into(), server_name: None, credentials, patience: None };
    let work = runtime.spawn(async move {
        let mut grpc =
            tonic::client::Grpc::new(endpoint(&options).unwrap().connect().await.unwrap());
        grpc.ready().await.unwrap();
        let (to, outward) = mpsc::channel(64);
        to.send(Frame::message(0, 0, Vec::new())).await.unwrap();
        let codec = ProstCodec::<Frame, Frame>::default();
        let path = http::uri::PathAndQuery::from_static(PATH);
        let mut inward = grpc
            .streaming(Request::new(ReceiverStream::new(outward)), path, codec)
            .await
            .unwrap()
            .into_inner();
        while let Ok(Some(frame)) = inward.message().await {
            if to.send(frame).await.is_err() {
                break;
            }
        }
    });
    runtime.block_on(work).unwrap();
}
