//! Admit sites by tickets: 32 random bytes for one site and one run, handed over where no
//! certificate is.
//!
//! Whoever brings people together already (a scheduler, a colleague with a phone) hands every site
//! its [`Invitation`]: where the server is, the authority that was made for this run alone, and the
//! ticket. The site knows the server by its certificate; the server knows the site by its ticket,
//! which crosses the wire only inside TLS. A site may come back with the same ticket as long as the
//! run lasts; the tickets of other sites and of other runs open nothing.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use subtle::{Choice, ConstantTimeEq};

use crate::certs::{self, CertError, Papers};

/// The name under which a ticket travels beside the first words of a stream.
pub const METADATA: &str = "consilience-ticket";

const BYTES: usize = 32;

/// What a site shows instead of a certificate.
#[derive(Clone)]
pub struct Ticket([u8; BYTES]);

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket(secret)")
    }
}

impl Ticket {
    /// A ticket that nobody can guess.
    pub fn random() -> Result<Ticket, CertError> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| CertError::Entropy(error.to_string()))?;
        Ok(Ticket(bytes))
    }

    /// A ticket of these bytes.
    pub fn from_bytes(bytes: [u8; BYTES]) -> Ticket {
        Ticket(bytes)
    }

    /// The ticket as text: 64 hexadecimal digits.
    pub fn text(&self) -> String {
        certs::hex(&self.0)
    }

    /// Read it again; `None`: it is no ticket.
    pub fn parse(text: &str) -> Option<Ticket> {
        let digits = text.as_bytes();
        if digits.len() != 2 * BYTES {
            return None;
        }
        let value = |digit: u8| (digit as char).to_digit(16).map(|d| d as u8);
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Ticket(bytes))
    }

    fn is(&self, other: &Ticket) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

/// All tickets of one run, and the server's certificate for it.
#[derive(Clone, Debug)]
pub struct Tickets {
    papers: Papers,
    tickets: Vec<(String, Ticket)>,
}

/// What a site is handed.
#[derive(Clone, Serialize, Deserialize)]
pub struct Invitation {
    /// The server, `HOST:PORT`.
    pub server: String,
    /// The authority that vouches for the server in this run, as PEM.
    pub authority: String,
    /// The site's ticket, as text.
    pub ticket: String,
    /// The site's name.
    pub site: String,
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Invitation({} to {}, secret)", self.site, self.server)
    }
}

impl Tickets {
    /// Issue tickets to these sites for one run of a server that is reached under these names. The
    /// authority's key is forgotten at once: nobody can make another certificate.
    pub fn issue(
        sites: &[String],
        server_names: &[String],
        now: SystemTime,
    ) -> Result<Tickets, CertError> {
        let tickets = sites
            .iter()
            .map(|site| Ok((site.clone(), Ticket::random()?)))
            .collect::<Result<_, CertError>>()?;
        Ok(Tickets { papers: certs::for_one_run(server_names, now)?, tickets })
    }

    /// The same certificate with tickets of one's own.
    pub fn with_tickets(self, tickets: Vec<(String, Ticket)>) -> Tickets {
        Tickets { tickets, ..self }
    }

    /// The server's certificate, and the authority that vouches for it.
    pub fn papers(&self) -> &Papers {
        &self.papers
    }

    /// What to hand a site, if it has a ticket.
    pub fn invitation(&self, site: &str, server: &str) -> Option<Invitation> {
        let (site, ticket) = self.tickets.iter().find(|(known, _)| known == site)?;
        Some(Invitation {
            server: server.to_owned(),
            authority: self.papers.authority_pem(),
            ticket: ticket.text(),
            site: site.clone(),
        })
    }

    /// Check what a site shows. Every ticket is looked at in full, whatever the outcome: the time
    /// says nothing.
    pub(crate) fn check(&self, site: &str, shown: Option<&str>) -> Result<(), String> {
        let Some(shown) = shown else {
            return Err(format!(
                "site \"{site}\" shows no ticket: this run admits sites by tickets"
            ));
        };
        let Some(shown) = Ticket::parse(shown) else {
            return Err(format!(
                "what site \"{site}\" shows is no ticket: it must have {} hexadecimal digits",
                2 * BYTES
            ));
        };
        let (mut own, mut others) = (Choice::from(0), Choice::from(0));
        for (holder, ticket) in &self.tickets {
            let same = ticket.is(&shown);
            if holder == site { own |= same } else { others |= same }
        }
        match (bool::from(own), bool::from(others)) {
            (true, _) => Ok(()),
            (false, true) => {
                Err(format!("the ticket that site \"{site}\" shows is another site's"))
            }
            (false, false) => Err(format!(
                "the ticket that site \"{site}\" shows is none of this run: a ticket is for one run"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_its_sites_and_nobody_elses() {
        let sites = ["a".to_owned(), "b".to_owned()];
        let issue = || Tickets::issue(&sites, &["localhost".into()], SystemTime::now()).unwrap();
        let (tickets, other) = (issue(), issue());
        let text =
            |tickets: &Tickets, site: &str| tickets.invitation(site, "localhost:1").unwrap().ticket;
        assert_eq!(tickets.check("a", Some(&text(&tickets, "a"))), Ok(()));
        let refused = |shown: Option<&str>| tickets.check("a", shown).unwrap_err();
        assert!(refused(Some(&text(&tickets, "b"))).contains("another site's"));
        assert!(refused(Some(&text(&other, "a"))).contains("none of this run"));
        assert!(refused(None).contains("no ticket"));
        for odd in ["", "00", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert!(refused(Some(odd)).contains("is no ticket"), "{odd}");
        }
        let mut near = text(&tickets, "a");
        let last = if near.pop() == Some('0') { '1' } else { '0' };
        near.push(last);
        assert!(refused(Some(&near)).contains("none of this run"), "one bit off");
        assert!(tickets.invitation("c", "localhost:1").is_none());
        let shown = format!("{tickets:?} {:?}", tickets.invitation("a", "localhost:1").unwrap());
        assert!(!shown.contains(&text(&tickets, "a")) && !shown.contains("BEGIN"), "{shown}");
    }
}
