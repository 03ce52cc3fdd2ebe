//! Log what happens, for people or as JSON, to standard error.

use std::io::IsTerminal;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Start the log; the environment variable CONSILIENCE_LOG says how much of it, such as `debug` or
/// `warn,consilience_net=debug` (`info` where it does not).
pub fn start(json: bool) {
    let filter = filter(std::env::var("CONSILIENCE_LOG").ok().as_deref());
    let log = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(std::io::stderr)
        .with_target(false);
    let _ = if json {
        log.json().finish().with(filter).try_init()
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).finish().with(filter).try_init()
    };
}

/// What is logged.
fn filter(stated: Option<&str>) -> Targets {
    let usual = || Targets::new().with_default(LevelFilter::INFO);
    stated.filter(|text| !text.is_empty()).and_then(|text| text.parse().ok()).unwrap_or_else(usual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn the_log_is_as_long_as_was_asked_for() {
        for stated in [None, Some(""), Some("info"), Some("no=such=level")] {
            let filter = filter(stated);
            assert!(filter.would_enable("consilience_net", &Level::INFO), "{stated:?}");
            assert!(!filter.would_enable("consilience_net", &Level::DEBUG), "{stated:?}");
        }
        let filter = filter(Some("warn,consilience_net=debug"));
        assert!(filter.would_enable("consilience_net::hub", &Level::DEBUG));
        assert!(filter.would_enable("h2", &Level::WARN));
        assert!(!filter.would_enable("h2", &Level::INFO));
    }
}
