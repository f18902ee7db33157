//! Runs peers in turn, and keeps their two figures pair by pair.

use crate::{
    machine::{STEAL_PERMILLE_MAX, Ticks, await_calm},
    record,
    sample::spread,
};

/// The two figures of one run.
pub(crate) type Figures = [f64; 2];

/// A function that makes one run of a peer.
pub(crate) type Run<'a> = Box<dyn Fn() -> Result<Figures, String> + 'a>;

/// The figures of all peers, in the order of the pairs.
#[derive(Debug)]
pub(crate) struct Turns {
    rows: Vec<(String, Vec<Figures>)>,
}

/// One peer's line of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row<'a> {
    /// Who ran.
    pub(crate) name: &'a str,
    /// Medians.
    pub(crate) figures: Figures,
    /// For each figure, the median over the pairs of the first peer's figure divided by this
    /// peer's.
    pub(crate) ratios: Figures,
    /// For each figure, the least and the greatest of these ratios.
    pub(crate) ratio_spans: [[f64; 2]; 2],
}

impl Turns {
    /// Runs all peers in turn, `pairs` times, and prints each run's figures under the heading
    /// `what`.
    pub(crate) fn take(
        what: &str,
        pairs: usize,
        peers: &[(&str, Run<'_>)],
    ) -> Result<Self, String> {
        let mut rows: Vec<(String, Vec<Figures>)> = peers
            .iter()
            .map(|(name, _)| ((*name).to_owned(), Vec::new()))
            .collect();
        for pair in 1..=pairs {
            // Each pair begins with another peer, so that none gains from its place in the pair.
            for turn in 0..peers.len() {
                let which = (pair + turn) % peers.len();
                rows[which].1.push(run_shown(pair, what, &peers[which])?);
            }
        }
        Ok(Self { rows })
    }

    /// Runs both peers twice in each pair: first, second, second, first, and in every second pair
    /// the other way round. So a machine that grows slower or faster during a pair favours neither.
    /// A pair's figures are the means of both runs.
    pub(crate) fn mirrored(
        what: &str,
        pairs: usize,
        peers: &[(&str, Run<'_>); 2],
    ) -> Result<Self, String> {
        let mut rows = peers
            .each_ref()
            .map(|(name, _)| ((*name).to_owned(), Vec::new()));
        for pair in 1..=pairs {
            let mut sums = [[0.0; 2]; 2];
            for turn in [0, 1, 1, 0] {
                let which = (pair + 1 + turn) % 2;
                let one = run_shown(pair, what, &peers[which])?;
                sums[which] = [0, 1].map(|figure| sums[which][figure] + one[figure]);
            }
            for ((_, all), sum) in rows.iter_mut().zip(sums) {
                all.push(sum.map(|both| both / 2.0));
            }
        }
        Ok(Self { rows: rows.into() })
    }

    /// Writes every run under `title`, with its two figures named `columns`.
    pub(crate) fn keep(&self, title: &str, columns: [&str; 2]) -> Result<(), String> {
        let rows: Vec<record::Row> = self
            .rows
            .iter()
            .map(|(name, runs)| (name.clone(), runs.iter().map(|run| run.to_vec()).collect()))
            .collect();
        record::raw(&record::slug(title), title, &columns, &rows, rows.len())
    }

    /// Returns the lines of the table.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|(name, all)| {
            let ratios = [0, 1].map(|which| {
                let pairs = self.rows[0].1.iter().zip(all);
                spread(pairs.map(|(ours, theirs)| ours[which] / theirs[which]))
            });
            Row {
                name,
                figures: [0, 1].map(|which| spread(all.iter().map(|one| one[which]))[1]),
                ratios: ratios.map(|[_, median, _]| median),
                ratio_spans: ratios.map(|[least, _, most]| [least, most]),
            }
        })
    }
}

/// Makes one run of a peer as [`undisturbed`] does, and prints its figures under `what`.
fn run_shown(pair: usize, what: &str, (name, run): &(&str, Run<'_>)) -> Result<Figures, String> {
    let one = undisturbed(what, name, run)?;
    eprintln!("pair {pair} {what} {name}: {:.1}, {:.1}", one[0], one[1]);
    Ok(one)
}

/// Makes one run on an undisturbed machine: if the hypervisor took more than 1 % of the time, the
/// run is repeated after [`await_calm`].
pub(crate) fn undisturbed<T>(
    what: &str,
    name: &str,
    run: impl Fn() -> Result<T, String>,
) -> Result<T, String> {
    for nth in 0..TRIES {
        if nth > 0 {
            await_calm();
        }
        let before = Ticks::read();
        let figures = run().map_err(|text| format!("{what} {name}: {text}"))?;
        let steal = Ticks::read().steal_permille_since(before);
        if steal <= STEAL_PERMILLE_MAX {
            return Ok(figures);
        }
        eprintln!("{what} {name}: void: steal {steal} permille");
    }
    Err(format!("{what} {name}: no valid run in {TRIES} tries"))
}

/// How many runs may be disturbed before the bench gives up.
pub(crate) const TRIES: usize = 15;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn ratios_are_of_pairs_and_not_of_medians() {
        let of = |name: &str, values: [f64; 3]| {
            let both = values.map(|value| [value, 1.0]);
            (name.to_owned(), both.to_vec())
        };
        let turns = Turns {
            rows: vec![of("ours", [10.0, 30.0, 8.0]), of("peer", [5.0, 10.0, 2.0])],
        };
        let peer = turns.rows().nth(1).unwrap();
        assert_eq!((peer.name, peer.figures), ("peer", [5.0, 1.0]));
        assert_eq!(peer.ratios, [3.0, 1.0]);
    }

    #[test]
    fn mirrored_runs_lie_around_each_other() {
        let order = RefCell::new(String::new());
        // Each run is faster than the one before it, as on a machine that warms up.
        let run = |name: char| {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                Ok([order.borrow().len() as f64, 1.0])
            }) as Run<'_>
        };
        let peers = [("now", run('n')), ("before", run('b'))];
        let turns = Turns::mirrored("a test", 2, &peers).unwrap();
        assert_eq!(*order.borrow(), "nbbnbnnb");
        let before = turns.rows().nth(1).unwrap();
        assert_eq!(
            (before.ratios, before.ratio_spans),
            ([1.0; 2], [[1.0; 2]; 2])
        );
    }
}
