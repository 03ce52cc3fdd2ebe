//! Show a run to people and to Prometheus: `/`, `/metrics` and `/status.json`, read only.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::status::{Status, View};

/// The most bytes of a request that are read, how long that may take, and how many connections
/// there are at once, from one address and from all.
const MOST: usize = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(5);
const OF_ONE: usize = 16;
const AT_ONCE: usize = 64;

/// Answer requests until the runtime ends. Whoever comes is let in, and where there are too many,
/// the one who has been there for longest has to go: people who ask are answered at once, and those
/// who say nothing block nobody.
pub async fn show(listener: TcpListener, status: Arc<Status>) {
    let mut there: VecDeque<(IpAddr, AbortHandle)> = VecDeque::new();
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        there.retain(|(_, task)| !task.is_finished());
        if let Some(oldest) = too_many(&there, from.ip())
            && let Some((_, task)) = there.remove(oldest)
        {
            task.abort();
        }
        let status = Arc::clone(&status);
        let task = tokio::spawn(async move {
            let _ = tokio::time::timeout(PATIENCE, answer(stream, &status)).await;
        });
        there.push_back((from.ip(), task.abort_handle()));
    }
}

/// Who has to go before one more from this address is let in.
fn too_many<T>(there: &VecDeque<(IpAddr, T)>, from: IpAddr) -> Option<usize> {
    let mut own = (0..there.len()).filter(|at| there[*at].0 == from);
    let oldest = own.next();
    let full = oldest.is_some() && 1 + own.count() >= OF_ONE;
    if full { oldest } else { (there.len() >= AT_ONCE).then_some(0) }
}

async fn answer(mut stream: TcpStream, status: &Status) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|w| w == b"\r\n\r\n") && request.len() < MOST {
        match stream.read(&mut buffer).await? {
            0 => break,
            n => request.extend_from_slice(&buffer[..n]),
        }
    }
    let line = request.split(|b| *b == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (code, kind, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/")) => ("200 OK", "text/html; charset=utf-8", PAGE.to_owned()),
        (Some("GET"), Some("/metrics")) => {
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", status.view().metrics())
        }
        (Some("GET"), Some("/status.json")) => {
            ("200 OK", "application/json", state(&status.view()))
        }
        (Some("GET"), _) => {
            ("404 Not Found", "text/plain", "there are /, /metrics and /status.json\n".to_owned())
        }
        _ => ("405 Method Not Allowed", "text/plain", "only GET is answered\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src \
         'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

fn state(view: &View) -> String {
    let site = |s: &crate::status::SiteView| {
        json!({ "name": s.name, "connected": s.connected, "answers": s.answers,
            "latency_ms": 1e3 * s.latency, "p50_ms": 1e3 * s.quantiles[0],
            "p90_ms": 1e3 * s.quantiles[1], "p99_ms": 1e3 * s.quantiles[2],
            "influence": s.influence, "bytes_up": s.bytes.0,
                "bytes_down": s.bytes.1, "refusals": s.refusals, "awaited": s.owes,
                "absent": s.absent, "late": s.late, "returns": s.returns,
                "dropped": s.dropped, "blocked": s.blocked.as_ref().map(|b| json!({
                    "since": b.clock(), "why": b.why })) })
    };
    json!({
        "run": view.run, "agreement": view.agreement,
        "stage": view.stage, "done": view.done.0, "total": view.done.1,
        "rounds_per_second": view.rate, "seconds_left": view.left,
        "seconds": view.seconds, "rhat": view.worst_rhat, "ess": view.least_ess,
        "statistics": view.recently.iter().map(|(name, mean)| json!({
            "name": name, "mean": mean })).collect::<Vec<_>>(),
        "history": { "seconds": view.history.0, "rates": view.history.1 },
        "bits_up": view.bits.0,
        "bits_down": view.bits.1,
        "sites": view.sites.iter().map(site).collect::<Vec<_>>(),
        "warnings": view.warnings, "alarms": view.alarms, "waiting": view.waits,
        "blocked": view.blocked,
        "orders": view.orders.iter().map(|(says, line)| json!({ "says": says, "line": line }))
            .collect::<Vec<_>>(),
        "refusals": view.refusals.iter().map(|(why,
        count)| json!({ "why": why, "count": count })).collect::<Vec<_>>(),
    })
    .to_string()
}

const PAGE: &str = include_str!("live.html");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use consilience_engine::run::Progress;
    use serde_json::Value;

    use super::*;

    /// The names of an object's fields, and those of the objects in its lists.
    fn fields(value: &Value, path: &str, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(inner) => {
                for (name, value) in inner {
                    into.insert(format!("{path}.{name}"));
                    fields(value, &format!("{path}.{name}"), into);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| fields(item, path, into)),
            _ => {}
        }
    }

    #[test]
    fn the_oldest_of_an_address_goes_first_and_then_the_oldest_of_all() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut there: VecDeque<(IpAddr, ())> = VecDeque::from([(b, ())]);
        there.extend(vec![(a, ()); OF_ONE - 1]);
        assert_eq!((too_many(&there, a), too_many(&there, b)), (None, None));
        there.push_back((a, ()));
        assert_eq!((too_many(&there, a), too_many(&there, b)), (Some(1), None));
        let many = (0..AT_ONCE).map(|k| (IpAddr::from([10, 0, 1, k as u8]), ())).collect();
        assert_eq!(too_many(&many, a), Some(0));
    }

    /// Connections that say nothing, or half of a request, are let go for those who ask.
    #[test]
    fn slow_clients_block_nobody() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let status = Status::new(&["north".into()], Arc::new(Progress::default()));
            tokio::spawn(show(listener, Arc::new(status)));
            let mut silent = Vec::new();
            for k in 0..3 * OF_ONE {
                let mut stream = TcpStream::connect(address).await.unwrap();
                if k % 2 == 0 {
                    stream.write_all(b"GET /metr").await.unwrap();
                }
                silent.push(stream);
            }
            let asked = async {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                answer
            };
            // in less time than the silent ones have
            let answer = tokio::time::timeout(PATIENCE.mul_f64(0.8), asked).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        });
    }

    #[test]
    fn the_page_is_tried_on_every_field_that_a_server_tells() {
        let status = Status::new(&["north".into()], Arc::new(Progress::default()));
        status.block(0, "its disk is full");
        let address = ([0, 0, 0, 0], 7461).into();
        status.listens(crate::status::Listening { address, certificates: true });
        status.refused(Some(0), "an answer to a closed round");
        status.measured((0, 0), None, vec![("acceptance_rate", 0.8)]);
        let mut told = BTreeSet::new();
        fields(&serde_json::from_str(&state(&status.view())).unwrap(), "", &mut told);
        let sample: Value = serde_json::from_str(include_str!("live.sample.json")).unwrap();
        let mut tried = BTreeSet::new();
        fields(&sample, "", &mut tried);
        assert_eq!(tried, told, "live.sample.json");
    }
}
