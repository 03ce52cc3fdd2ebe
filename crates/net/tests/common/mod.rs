//! Run a server and its sites as threads of this process.
#![allow(dead_code)] // every test uses a part

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Outcome, Progress, sample};
use consilience_engine::site::{Own, names};
use consilience_net::frame::{Frame, PATH};
use consilience_net::join::{Credentials, JoinError, JoinOptions, endpoint, join};
use consilience_net::serve::{Admission, ServeError, ServeOptions, Served, Stage, bind, serve};
use consilience_net::status::Status;
use consilience_net::worker::Brings;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic_prost::ProstCodec;

pub fn config(text: &str) -> Config {
    Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text: text.into() })
        .unwrap()
}

/// Three lopsided clients in two parameters, and a sampler.
pub fn gaussians(sampler: &str, iterations: u64) -> String {
    format!(
        "seed = 5\nseeds = \"simulation\"\n[target]\nmodel = \"gaussian\"\n\
         prior = {{ law = \"gaussian\", variance = 4.0 }}\n\
         [[client]]\nname = \"north\"\nmean = [1.0, -2.0]\nprecision = [[2.0, 0.3], [0.3, 1.0]]\n\
         [[client]]\nname = \"east\"\nmean = [0.5, 0.25]\nprecision = [[1.0, -0.2], [-0.2, 3.0]]\n\
         [[client]]\nname = \"the south\"\nmean = [-1.0, 4.0]\n\
         precision = [[0.5, 0.0], [0.0, 0.7]]\n\
         [sampler]\n{sampler}\n[run]\nchains = 2\niterations = {iterations}\nburn_in = 5\n\
         thin = 2\n"
    )
}

/// The four hospitals, surveyed for their curvature.
pub fn hospitals(iterations: u64) -> String {
    format!(
        "seed = 3\nseeds = \"simulation\"\n[data]\nbuiltin = \"heart-disease\"\n[sampler]\n\
         name = \"qlsd++\"\nbatch = 0.2\nrefresh = 7\n\
         compress = \"qsgd(16)\"\nprecondition = true\n[run]\nchains = 2\n\
         iterations = {iterations}\nburn_in = 10\nstart = \"optimum\"\n"
    )
}

/// The rows of one of them.
pub fn hospital(site: &str) -> Own {
    Own::File(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../data/heart-disease/processed.{site}.data")),
    )
}

/// The same run in one process.
pub fn in_process(config: &Config) -> (Problem, Plan, Outcome) {
    let problem = Problem::new(config).unwrap();
    let plan = Plan::new(config, &problem).unwrap();
    let outcome =
        sample(&plan, &plan.length, config.seed, Sinks::Memory, &Progress::default()).unwrap();
    (problem, plan, outcome)
}

/// A server at work.
pub struct Serving {
    pub address: SocketAddr,
    pub http: Option<SocketAddr>,
    pub status: Arc<Status>,
    thread: JoinHandle<Result<Served, ServeError>>,
}

impl Serving {
    pub fn end(self) -> Result<Served, ServeError> {
        self.thread.join().unwrap()
    }
}

pub fn options() -> ServeOptions {
    ServeOptions { deadline: Some(Duration::from_secs(100)), ..ServeOptions::new(Admission::Word) }
}

pub fn start(config: &Config, options: ServeOptions) -> Serving {
    let status = Arc::new(Status::new(&names(config).unwrap(), Arc::new(Progress::default())));
    let (tell, told) = mpsc::channel();
    let (config, shared, wants_http) =
        (config.clone(), Arc::clone(&status), options.http.is_some());
    let thread = std::thread::spawn(move || {
        let tell = |stage: Stage<'_>| {
            if let Stage::Listening(address) | Stage::Showing(address) = stage {
                let _ = tell.send(address);
            }
        };
        serve(
            bind("127.0.0.1:0".parse().unwrap()).unwrap(),
            &config,
            &options,
            &shared,
            tell,
            |served| served,
        )
    });
    let address = told.recv().unwrap();
    Serving { address, http: wants_http.then(|| told.recv().unwrap()), status, thread }
}

pub fn brings(site: &str) -> Brings {
    Brings { allows_simulation: true, ..Brings::new(site, Own::Stated) }
}

pub fn joining(address: SocketAddr) -> JoinOptions {
    JoinOptions {
        server: address.to_string(),
        server_name: None,
        credentials: Credentials::Word,
        patience: Some(Duration::from_secs(60)),
    }
}

pub fn site(brings: Brings, options: JoinOptions) -> JoinHandle<Result<bool, JoinError>> {
    std::thread::spawn(move || join(brings, &options, &Arc::new(AtomicBool::new(false))))
}

/// A site's stream, as far as its greeting.
pub async fn connected(
    address: SocketAddr,
    hello: Frame,
) -> (tokio::sync::mpsc::Sender<Frame>, tonic::Streaming<Frame>) {
    let mut grpc =
        tonic::client::Grpc::new(endpoint(&joining(address)).unwrap().connect().await.unwrap());
    grpc.ready().await.unwrap();
    let (to, outward) = tokio::sync::mpsc::channel(64);
    to.send(hello).await.unwrap();
    let path = http::uri::PathAndQuery::from_static(PATH);
    let codec = ProstCodec::<Frame, Frame>::default();
    let inward = grpc
        .streaming(Request::new(ReceiverStream::new(outward)), path, codec)
        .await
        .unwrap()
        .into_inner();
    (to, inward)
}

/// The run with all its sites, over loopback.
pub fn over_the_network(config: &Config, options: ServeOptions) -> Served {
    let serving = start(config, options);
    let mut sites: Vec<_> = names(config)
        .unwrap()
        .iter()
        .map(|name| site(brings(name), joining(serving.address)))
        .collect();
    let served = serving.end().unwrap();
    for site in sites.drain(..) {
        assert!(site.join().unwrap().unwrap(), "a site did not see the end");
    }
    served
}

/// The network's run is the one of this process, in every number.
pub fn same(name: &str, served: &Served, (problem, plan, outcome): &(Problem, Plan, Outcome)) {
    assert_eq!(served.plan.step(), plan.step(), "{name}");
    assert_eq!(served.plan.survey, plan.survey, "{name}: the surveys' ledger");
    assert_eq!(served.outcome.draws, outcome.draws, "{name}: the draws");
    assert_eq!(served.outcome.ledger, outcome.ledger, "{name}: the ledger");
    assert_eq!(served.outcome.statistics, outcome.statistics, "{name}");
    assert_eq!(served.outcome.rows_evaluated, outcome.rows_evaluated, "{name}");
    assert_eq!(
        (&served.problem.parameters, &served.problem.notes),
        (&problem.parameters, &problem.notes),
        "{name}"
    );
    assert_eq!(served.problem.moments_bits, problem.moments_bits, "{name}");
    assert_eq!(served.problem.statement, problem.statement, "{name}");
}

/// A wire that writes down what passes.
pub fn tapped(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, tape) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let shared = Arc::clone(&tape);
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(to).unwrap();
            for (mut from, mut onto) in
                [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
            {
                let tape = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        tape.lock().unwrap().extend_from_slice(&buffer[..n]);
                        if onto.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = onto.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, tape)
}

/// Whether some bytes stand in others.
pub fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}
