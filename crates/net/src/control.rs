//! Let an operator hold a run, let it go on, go on without a site, or end it: over the same port as
//! the sites, by a certificate of its own.

use http::uri::PathAndQuery;
use serde::{Deserialize, Serialize};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use crate::audit::Happened;
use crate::frame::{ASIDE, Frame};
use crate::join::{JoinError, JoinOptions, endpoint};
use crate::status::Status;
use crate::worker::SiteError;

/// The gRPC method.
pub const PATH: &str = "/consilience.Session/Control";

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Say how the run stands.
    Status,
    /// Hold the run until it is resumed: the sites wait.
    Pause,
    /// Let it go on.
    Resume,
    /// Go on without a site.
    Drop {
        /// Which.
        site: String,
    },
    /// End it now, with the draws that it has.
    End,
}

/// What an operator is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// It is done, or this is how it stands.
    Done(String),
    /// It cannot be done, and this is why.
    Refused(String),
}

/// Do what an operator asks for.
pub(crate) fn obey(status: &Status, order: &Command) -> Report {
    match order {
        Command::Status => {}
        Command::Pause => status.pause(),
        Command::Resume => status.resume(),
        Command::End => status.end(),
        Command::Drop { site } if !status.sites().contains(site) => {
            let sites = status.sites().join(", ");
            return Report::Refused(format!("there is no site \"{site}\": the sites are {sites}"));
        }
        Command::Drop { site } if !status.is_elastic() => {
            return Report::Refused(format!(
                "this run is strict: without the rows of \"{site}\" it would sample another \
                 posterior. End it, and start one without this site; or wait until the site is \
                 mended"
            ));
        }
        Command::Drop { site } => {
            status.leave_out(site);
        }
    }
    if *order != Command::Status {
        status.note(Happened::Ordered { order: format!("{order:?}") });
    }
    tracing::warn!(?order, "the operator");
    Report::Done(status.view().line())
}

/// Ask the server of a run for something; the text says how the run stands then.
pub fn order(options: &JoinOptions, order: &Command) -> Result<String, JoinError> {
    let setup = |error: &dyn std::fmt::Display| JoinError::Setup(error.to_string());
    let endpoint = endpoint(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let away = |why: String| JoinError::Away { server: options.server.clone(), seconds: 0, why };
    let answered = runtime.map_err(|e| setup(&e))?.block_on(async {
        let channel = endpoint.connect().await.map_err(|e| away(crate::join::causes(&e)))?;
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.map_err(|e| away(crate::join::causes(&e)))?;
        let codec = ProstCodec::<Frame, Frame>::default();
        let request = Request::new(Frame::words(ASIDE, order));
        grpc.unary(request, PathAndQuery::from_static(PATH), codec).await.map_err(|status| {
            match status.code() {
                Code::PermissionDenied => SiteError::Refused(status.message().to_owned()).into(),
                _ => away(crate::join::causes(&status)),
            }
        })
    })?;
    match answered.into_inner().read() {
        Ok(Report::Done(text)) => Ok(text),
        Ok(Report::Refused(why)) => Err(SiteError::Refused(why).into()),
        Err(why) => Err(JoinError::Setup(why)),
    }
}
