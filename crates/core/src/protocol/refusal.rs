//! Name why a message is refused, with the numbers that show it.

use thiserror::Error;

use super::Task;
use super::wire::WireError;
use crate::rng::ClientId;

/// Why a message was refused. Nothing changed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Refusal {
    /// The sender was not asked in this round.
    #[error("client {} was not asked in round {round}", .from.0)]
    NotAsked {
        /// Who.
        from: ClientId,
        /// The current round.
        round: u64,
    },
    /// The sender has answered already.
    #[error("client {} has answered round {round} already", .from.0)]
    Twice {
        /// Who.
        from: ClientId,
        /// The current round.
        round: u64,
    },
    /// The answer is to another round.
    #[error("client {} answers round {found}, where round {round} is open", .from.0)]
    WrongRound {
        /// Who.
        from: ClientId,
        /// The round of the answer.
        found: u64,
        /// The current round.
        round: u64,
    },
    /// The bytes are not a message.
    #[error("the message of client {} in round {round} is refused: {why}", .from.0)]
    Malformed {
        /// Who.
        from: ClientId,
        /// The current round.
        round: u64,
        /// What is wrong with it.
        why: WireError,
    },
    /// The vector is longer than was agreed on.
    #[error(
        "the answer of client {} in round {round} has the norm {norm:.3e}, above the limit \
         {most:.3e}{}: its data or its model is not what was agreed on{}",
        .from.0,
        if *.of_rows { " of all that its rows can give" } else { "" },
        if *.of_rows { "" } else { ", or the limit is too low" }
    )]
    TooLarge {
        /// Who.
        from: ClientId,
        /// The current round.
        round: u64,
        /// The norm of its vector.
        norm: f64,
        /// The limit.
        most: f64,
        /// Whether it follows from the client's rows.
        of_rows: bool,
    },
    /// A client comes back without having kept all of its answers.
    #[error(
        "client {} remembers {has} answers, where {needs} have arrived here: it has lost what it \
         wrote down. Give it back its state, or start the run anew",
        .from.0
    )]
    ClientForgot {
        /// Who.
        from: ClientId,
        /// How many it remembers.
        has: u64,
        /// How many arrived.
        needs: u64,
    },
    /// A client has answered more than was asked.
    #[error(
        "client {} has given {has} answers, where {most} are possible: the server has lost what it \
         wrote down, or the client is of another run. Give the server back its state, or start the \
         run anew",
        .from.0
    )]
    ServerForgot {
        /// Who.
        from: ClientId,
        /// How many answers it gave.
        has: u64,
        /// How many can have been asked for.
        most: u64,
    },
}

/// Why a client refused an order. Nothing changed, unless its model failed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OrderRefusal {
    /// The bytes are not a message.
    #[error("the order is refused: {0}")]
    Malformed(#[from] WireError),
    /// The order is older than the last one that was answered.
    #[error(
        "the order is for round {found}, where round {last} is answered already: it is late, or \
         replayed"
    )]
    Old {
        /// The round of the order.
        found: u64,
        /// The round of the last one.
        last: u64,
    },
    /// A second order stands in the place of the one that was answered.
    #[error(
        "this is another order for round {round}, which is answered already: the same noise on \
         another point would give away the difference of the gradients"
    )]
    Changed {
        /// The round.
        round: u64,
    },
    /// The order would use random numbers a second time.
    #[error(
        "the order is for round {found}, where the noise up to round {used} is used already: the \
         same noise on another point would give away the difference of the gradients"
    )]
    Used {
        /// The round of the order.
        found: u64,
        /// The first round that is not used.
        used: u64,
    },
    /// A round beyond all that have random numbers.
    #[error("the order asks for rounds up to {end}: there are random numbers for those below 2^56")]
    Beyond {
        /// Where it would end.
        end: u64,
    },
    /// A task that this client does not have, or a vector is missing.
    #[error(
        "the order asks for what this sampler's clients do not give ({task:?}), or lacks a vector"
    )]
    Unfit {
        /// The task.
        task: Task,
    },
    /// Levels of a secure sum, and nothing to hide them behind.
    #[error(
        "the order asks for levels of a secure sum, and this client shares no secrets with the \
         others to hide them behind: secure sums are made by `consilience join`, with certificates"
    )]
    Unmasked,
    /// A point so far out that sums over rows may overflow there.
    #[error(
        "the order asks about a point with a coordinate of {largest:e}, beyond {most:e}: sums over \
         rows could be no numbers there, and whether they are would tell a row"
    )]
    Far {
        /// The largest coordinate, or number beside them.
        largest: f64,
        /// The limit.
        most: f64,
    },
    /// What the client may tell of its rows is told.
    #[error(
        "the order asks for {asked} releases, where {told} of {most} that the privacy budget \
         allows are spent: this client answers no more in this chain"
    )]
    Spent {
        /// How many releases it asks for.
        asked: u64,
        /// How many are spent.
        told: u64,
        /// How many the budget allows.
        most: u64,
    },
    /// The client's model failed in the middle of an order, and nobody can say any more where the
    /// client stands.
    #[error(
        "the model gave no answer in round {round}: this client can only go on from what it kept \
         before"
    )]
    Unanswered {
        /// The round.
        round: u64,
    },
}
