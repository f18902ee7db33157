//! The two ways in which deliveries may tile a session: in order, or each packet once.

use super::{Ledger, Publication, Record, near};
use crate::payload;

/// The part of one session that a receiver has accounted for.
#[derive(Debug)]
pub(super) enum Tiles {
    /// Where the next message or loss must begin; `None` before the first.
    InOrder(Option<u64>),
    /// One entry for each packet from the session's start on.
    Scattered(Vec<Tile>),
}

/// The state of one packet in arrival mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tile {
    Open,
    Delivered,
    Lost,
}

/// What is noteworthy about a delivery that is in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    /// The bytes differ from those sent. For [`Tiles::InOrder`], the bytes of another message are
    /// an error instead.
    pub(super) is_damaged: bool,
    /// Nothing before it was delivered to this receiver or reported lost, although the session
    /// began earlier.
    pub(super) has_begun_late: bool,
}

impl Tiles {
    /// Returns the position before which everything was delivered or reported lost; `None` in
    /// arrival mode and before the first delivery.
    pub(super) const fn reached(&self) -> Option<u64> {
        match self {
            Self::InOrder(next) => *next,
            Self::Scattered(_) => None,
        }
    }

    pub(super) fn message(
        &mut self,
        ledger: &Ledger,
        publication: &Publication,
        position: u64,
        data: &[u8],
    ) -> Result<Placed, String> {
        match self {
            Self::InOrder(next) => in_order(next, ledger, publication, position, data),
            Self::Scattered(tiles) => scattered(tiles, ledger, publication, position, data),
        }
    }

    /// Accounts for a loss report. Returns true when nothing of the session came to the receiver
    /// before this report, and the report begins later than the session.
    pub(super) fn lost(
        &mut self,
        publication: &Publication,
        first: u64,
        count: u64,
    ) -> Result<bool, String> {
        let due = match self {
            Self::InOrder(next) => *next,
            Self::Scattered(_) => None,
        };
        let at = near(first, due.unwrap_or(publication.end));
        let end = at + count;
        if count == 0 || end > publication.end {
            return Err(format!(
                "{count} lost at {at}, where {} is the end",
                publication.end
            ));
        }
        match self {
            Self::InOrder(next) => {
                if due.is_some_and(|due| due != at) {
                    return Err(format!("{count} lost at {at}, where {due:?} was due"));
                }
                *next = Some(end);
                Ok(due.is_none() && at != publication.start)
            }
            Self::Scattered(tiles) => {
                let is_first = tiles.is_empty();
                for position in at..end {
                    set(tiles, publication, position, Tile::Lost)?;
                }
                Ok(is_first && at != publication.start)
            }
        }
    }

    /// Checks that everything was accounted for: with `from_start` from the session's start,
    /// otherwise from where the receiver began.
    pub(super) fn end(&self, publication: &Publication, from_start: bool) -> Result<(), String> {
        let end = publication.end;
        match self {
            Self::InOrder(None) if from_start && end != publication.start => {
                Err("ended without delivering anything or reporting a loss".to_owned())
            }
            Self::InOrder(Some(next)) if *next != end => {
                Err(format!("ended at {next} although {end} is its end"))
            }
            Self::InOrder(_) => Ok(()),
            Self::Scattered(tiles) => {
                let is_open = |tile: &Tile| *tile == Tile::Open;
                let begun = if from_start {
                    0
                } else {
                    tiles.iter().take_while(|t| is_open(t)).count()
                };
                let open = tiles[begun..].iter().filter(|tile| is_open(tile)).count() as u64;
                let missing = end - publication.start - tiles.len() as u64 + open;
                let is_empty = tiles.is_empty() && !from_start;
                if missing > 0 && !is_empty {
                    return Err(format!("ended with {missing} packets unaccounted for"));
                }
                Ok(())
            }
        }
    }
}

fn in_order(
    next: &mut Option<u64>,
    ledger: &Ledger,
    publication: &Publication,
    position: u64,
    data: &[u8],
) -> Result<Placed, String> {
    let at = near(position, next.unwrap_or(publication.end));
    let due = next.or_else(|| publication.record_around(at).map(|record| record.first));
    let is = payload::identify(ledger.stream, data);
    let Some(record) = due.and_then(|due| publication.record_at(due)) else {
        return Err(format!("message {is:?} at {at}, where {due:?} was due"));
    };
    let has_begun_late = next.is_none() && record.first != publication.start;
    *next = Some(record.first + record.count);
    let mut wanted = vec![0; record.len];
    payload::fill(ledger.stream, record.message, &mut wanted);
    let is_damaged = wanted != data;
    let is_another = is_damaged && (is.is_some() || wanted.len() != data.len());
    let is_in_place = (record.first..record.first + record.count).contains(&at);
    if is_another || !is_in_place {
        let (message, len, first) = (record.message, record.len, record.first);
        let found = data.len();
        return Err(format!(
            "message {is:?} of {found} bytes at {at} in place of message {message} of {len} bytes \
             at {first}"
        ));
    }
    Ok(Placed {
        is_damaged,
        has_begun_late,
    })
}

fn scattered(
    tiles: &mut Vec<Tile>,
    ledger: &Ledger,
    publication: &Publication,
    position: u64,
    data: &[u8],
) -> Result<Placed, String> {
    let at = near(position, publication.end);
    let Some(record) = publication.record_around(at) else {
        return Err(format!("a packet at {at}, where nothing was published"));
    };
    let is_first = tiles.is_empty();
    set(tiles, publication, at, Tile::Delivered)?;
    let wanted = piece(ledger, publication, record, at);
    if wanted.len() != data.len() {
        let (found, len) = (data.len(), wanted.len());
        return Err(format!(
            "a packet of {found} bytes at {at} in place of one of {len}"
        ));
    }
    let has_begun_late = is_first && at != publication.start;
    Ok(Placed {
        is_damaged: wanted != data,
        has_begun_late,
    })
}

/// Returns the bytes of the packet at `position`.
fn piece(ledger: &Ledger, publication: &Publication, record: Record, position: u64) -> Vec<u8> {
    let mut whole = vec![0; record.len];
    payload::fill(ledger.stream, record.message, &mut whole);
    if record.count == 1 {
        return whole;
    }
    let index = crate::frame::index(position - record.first);
    let start = (index * publication.piece_len).min(record.len);
    let end = (start + publication.piece_len).min(record.len);
    whole[start..end].to_vec()
}

fn set(tiles: &mut Vec<Tile>, publication: &Publication, at: u64, to: Tile) -> Result<(), String> {
    let index = crate::frame::index(at - publication.start);
    if index >= tiles.len() {
        tiles.resize(index + 1, Tile::Open);
    }
    if tiles[index] != Tile::Open {
        let was = tiles[index];
        return Err(format!("the packet at {at} is {to:?} after it was {was:?}"));
    }
    tiles[index] = to;
    Ok(())
}
