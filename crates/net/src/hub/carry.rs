//! Carry exchanges: give orders, take answers, close rounds whose time is over, and bring sites
//! that come back to where the others are.

use std::time::Instant;

use consilience_core::protocol::{Event as Happening, Output, Refusal};
use consilience_core::rng::ClientId;
use tracing::debug;

use super::{Broken, Hub, LOOK, Turn};
use crate::frame::Frame;
use crate::party::Party;

impl Hub {
    /// Carry exchanges until no party wants more.
    pub fn carry<P: Party>(&mut self, survey: bool, parties: &mut [P]) -> Result<(), Broken> {
        let phase = self.phases;
        self.phases += 1;
        self.open = Some((phase, survey));
        let mut running = vec![true; parties.len()];
        for client in 0..self.places.len() {
            self.places[client].ready = false;
            self.places[client].busy.clear();
            self.ask_where(client);
        }
        self.opened = vec![Instant::now(); parties.len()];
        for (chain, party) in parties.iter_mut().enumerate() {
            running[chain] = party.goes_on() && self.drain(phase, chain, party)?;
        }
        let mut measured = Instant::now();
        while running.iter().any(|runs| *runs) {
            if measured.elapsed() > LOOK {
                P::measure(parties, &self.status);
                measured = Instant::now();
            }
            self.close_what_is_due(phase, parties, &mut running)?;
            self.closes = parties
                .iter()
                .zip(&self.opened)
                .filter_map(|(party, opened)| Some(*opened + party.patience()?))
                .min();
            match self.turn()? {
                Turn::Nothing => {}
                Turn::At(client, counts) => {
                    self.resume(phase, survey, client, &counts, parties, &running)?
                }
                Turn::Message(client, frame) => {
                    let chain = frame.chain as usize;
                    let ended = frame.phase == phase
                        && running.get(chain).is_some_and(|runs| !*runs)
                        && parties[chain].patience().is_some();
                    if ended && self.places[client].busy.remove(&chain) {
                        self.status.late(client); // the chain came to its end without it
                        continue;
                    }
                    if frame.phase != phase
                        || !self.places[client].ready
                        || !running.get(chain).is_some_and(|runs| *runs)
                    {
                        let (found, chains) = (frame.phase, parties.len());
                        self.refuse(
                            client,
                            &format!(
                                "an answer in phase {found}, chain {chain}: phase {phase} \
                                with {chains} chains is open"
                            ),
                        );
                        continue;
                    }
                    match parties[chain].handle(ClientId(client as u32), &frame.body, frame.rows) {
                        Err(Refusal::WrongRound { found, round, .. })
                            if found < round
                                && parties[chain].patience().is_some()
                                && self.places[client].busy.remove(&chain) =>
                        {
                            debug!(site = %self.sites[client], chain = chain + 1, answered = found,
                                open = round, "late");
                            self.status.late(client);
                            self.give_again(phase, chain, client, &parties[chain]);
                        }
                        Err(refusal @ (Refusal::Malformed { .. } | Refusal::TooLarge { .. })) => {
                            self.poisoned(client, &refusal.to_string())
                        }
                        Err(refusal) => self.refuse(client, &refusal.to_string()),
                        Ok(()) => {
                            self.goes_forward();
                            self.places[client].busy.remove(&chain);
                            self.status.heard(client, frame.body.len());
                            self.unblock(client);
                            running[chain] = self.drain(phase, chain, &mut parties[chain])?;
                        }
                    }
                }
            }
        }
        (self.open, self.closes) = (None, None);
        Ok(())
    }

    /// Close the rounds whose time is over. While nobody is connected at all they wait: that is no
    /// drop-out, but an outage, and a chain without any site would wander off.
    fn close_what_is_due<P: Party>(
        &mut self,
        phase: u32,
        parties: &mut [P],
        running: &mut [bool],
    ) -> Result<(), Broken> {
        for (chain, party) in parties.iter_mut().enumerate() {
            let Some(most) = party.patience().filter(|_| running[chain]) else { continue };
            if !self.somebody_is_there() {
                self.opened[chain] = Instant::now();
                continue;
            }
            let left_out = |id: &ClientId| self.status.is_left_out(id.index());
            let dropped = self.status.left_out();
            let due = self.opened[chain].elapsed() >= most
                || (dropped > 0
                    && dropped >= party.awaits()
                    && party.awaited().iter().all(left_out));
            if !due {
                continue;
            }
            if let Some(absent) = party.close() {
                for client in absent {
                    debug!(site = %self.sites[client.index()], chain = chain + 1, "a round is \
                        closed without it");
                    self.status.absent(client.index());
                }
                running[chain] = self.drain(phase, chain, party)?;
            }
        }
        Ok(())
    }

    /// Whether any site takes orders of the open phase: the one that did so last, or another.
    fn somebody_is_there(&mut self) -> bool {
        if self.places.get(self.present).is_some_and(|place| place.ready) {
            return true;
        }
        let ready = self.places.iter().position(|place| place.ready);
        self.present = ready.unwrap_or(self.present);
        ready.is_some()
    }

    /// Do all that a machine wants done; `false`: it is wanted no more.
    fn drain<P: Party>(&mut self, phase: u32, chain: usize, party: &mut P) -> Result<bool, Broken> {
        loop {
            match party.poll().map_err(Broken::Party)? {
                None => return Ok(true),
                Some(Output::Send { to, bytes }) => {
                    if self.places[to.index()].ready && self.places[to.index()].busy.insert(chain) {
                        self.status.asked(to.index(), bytes.len());
                        self.send(to.index(), Frame::message(phase, chain, bytes), true);
                    }
                }
                Some(Output::Happened(event)) => {
                    self.status.exchanged();
                    self.opened[chain] = Instant::now();
                    if !party.goes_on() || matches!(event, Happening::Done | Happening::Diverged) {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// A site says how far it is: give it the orders that it has not answered.
    fn resume<P: Party>(
        &mut self,
        phase: u32,
        survey: bool,
        client: usize,
        counts: &[u64],
        parties: &[P],
        running: &[bool],
    ) -> Result<(), Broken> {
        if counts.len() != parties.len() {
            self.refuse(
                client,
                &format!("it counts {} chains, where there are {}", counts.len(), parties.len()),
            );
            return Ok(());
        }
        for ((party, count), runs) in parties.iter().zip(counts).zip(running) {
            if let (Err(refusal), true) = (party.welcome(ClientId(client as u32), *count), runs) {
                if survey && matches!(refusal, Refusal::ClientForgot { .. }) {
                    return Err(Broken::Forgot(refusal));
                }
                self.cut(client, &format!("site \"{}\": {refusal}", self.sites[client]));
                return Ok(());
            }
        }
        self.places[client].ready = true;
        self.unblock(client);
        for (chain, party) in parties.iter().enumerate().filter(|(chain, _)| running[*chain]) {
            self.give_again(phase, chain, client, party);
        }
        Ok(())
    }

    /// Give a site the order of the open round that it has not answered.
    fn give_again<P: Party>(&mut self, phase: u32, chain: usize, client: usize, party: &P) {
        if let Some(bytes) = party.again(ClientId(client as u32)) {
            self.places[client].busy.insert(chain);
            self.status.asked(client, bytes.len());
            self.send(client, Frame::message(phase, chain, bytes), true);
        }
    }
}
