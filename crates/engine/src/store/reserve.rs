//! Reserve rounds ahead: write down that their random numbers are spent before any of them is
//! answered, instead of syncing every answer.
//!
//! Answers go to the log without a sync. A process that is killed loses nothing by that; a machine
//! that loses its power may lose the last answers, though they have left. What it then must never
//! do is answer another order with the random numbers of one of these: the difference of two
//! answers with the same noise gives away that of the gradients. So a *reservation* is durable
//! before the first answer under it leaves: all rounds below it may be spent. After a power cut
//! rounds below the reservation that are not in the log are refused
//! ([`consilience_core::protocol::OrderRefusal::Used`]); rounds from there on have random numbers
//! that nobody has seen, under the same key. Whether the power failed is told by [`Disk::session`];
//! where that is not known, it is taken to have failed.
//!
//! What is lost is not replaced: a server that waits for a lost answer waits in vain, and is told
//! so. That is the price: a sync of every answer ([`super::DurableClient::open`]) survives power
//! cuts and costs a sync; a reservation survives kills, keeps its word over power cuts, and costs
//! next to nothing.

use super::{Disk, StoreError};

const FILE: &str = "client.reserved";

/// Which rounds are spent, as far as the disk knows.
#[derive(Debug)]
pub(super) struct Reservation {
    /// How many rounds at a time.
    ahead: u64,
    /// Rounds below this that are not in the log are spent for good: they were reserved when the
    /// power failed.
    floor: u64,
    /// Rounds below this may be answered.
    reserved: u64,
}

impl Reservation {
    /// Read what was reserved.
    pub(super) fn open(disk: &dyn Disk, ahead: u64) -> Result<Reservation, StoreError> {
        let Some(bytes) = disk.read(FILE).map_err(StoreError::at(FILE))? else {
            return Ok(Reservation { ahead, floor: 0, reserved: 0 });
        };
        let damaged = || StoreError::damaged(FILE, 0, "its checksum is not that of its contents");
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if crc32fast::hash(body).to_le_bytes() != *checksum {
            return Err(damaged());
        }
        let (floor, rest) = body.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (reserved, session) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (floor, reserved) = (u64::from_le_bytes(*floor), u64::from_le_bytes(*reserved));
        let lost_nothing = disk.session().is_some_and(|now| now.as_bytes() == session);
        Ok(Reservation { ahead, floor: if lost_nothing { floor } else { reserved }, reserved: 0 })
    }

    /// The first round that may be answered, besides those in the log.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// See to it that rounds below `end` may be answered, durable on return.
    pub(super) fn cover(&mut self, disk: &mut dyn Disk, end: u64) -> Result<(), StoreError> {
        if end <= self.reserved {
            return Ok(());
        }
        let reserved = end.saturating_add(self.ahead);
        self.write(disk, reserved)?;
        self.reserved = reserved;
        Ok(())
    }

    /// Give back what was reserved and not used: everything below `end` is in the log, and durable.
    pub(super) fn release(&mut self, disk: &mut dyn Disk, end: u64) -> Result<(), StoreError> {
        if end < self.reserved {
            self.write(disk, end.max(self.floor))?;
            self.reserved = end;
        }
        Ok(())
    }

    fn write(&self, disk: &mut dyn Disk, reserved: u64) -> Result<(), StoreError> {
        let session = disk.session().unwrap_or_default();
        let mut bytes =
            [&self.floor.to_le_bytes()[..], &reserved.to_le_bytes(), session.as_bytes()].concat();
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        disk.replace(FILE, &bytes).map_err(StoreError::at(FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Faults, Simulated};
    use super::*;

    /// A process may die between the reservation and the answer: what an earlier power cut has
    /// spent stays spent.
    #[test]
    fn what_a_power_cut_has_spent_stays_spent() {
        let mut disk = Simulated::new(1, Faults::default());
        let mut reservation = Reservation::open(&disk, 10).unwrap();
        reservation.cover(&mut disk, 5).unwrap();
        assert_eq!(Reservation::open(&disk, 10).unwrap().floor(), 0, "killed: the log has all");
        disk.power_cut();
        let mut reservation = Reservation::open(&disk, 10).unwrap();
        assert_eq!(reservation.floor(), 15);
        reservation.cover(&mut disk, 20).unwrap();
        let mut reservation = Reservation::open(&disk, 10).unwrap(); // killed before it answered
        assert_eq!(reservation.floor(), 15);
        reservation.cover(&mut disk, 20).unwrap();
        reservation.release(&mut disk, 20).unwrap();
        disk.power_cut();
        assert_eq!(Reservation::open(&disk, 10).unwrap().floor(), 20);
    }
}
