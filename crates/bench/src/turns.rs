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
                let ((name, run), (_, all)) = (&peers[which], &mut rows[which]);
                let one = undisturbed(what, name, run)?;
                eprintln!("pair {pair} {what} {name}: {:.1}, {:.1}", one[0], one[1]);
                all.push(one);
            }
        }
        Ok(Self { rows })
    }

    /// Runs `ours` and `theirs` twice in each pair: ours, theirs, theirs, ours, and in every second
    /// pair the other way round. So a machine that grows slower or faster during a pair favours
    /// neither. Returns the means of both runs, pair by pair, and beside them the first run of ours
    /// with the second, which shows the noise of single runs.
    pub(crate) fn mirrored(
        what: &str,
        pairs: usize,
        peers: &[(&str, Run<'_>); 2],
    ) -> Result<[Self; 2], String> {
        let mut runs = [Vec::new(), Vec::new()];
        for pair in 1..=pairs {
            let mut both = [Vec::new(), Vec::new()];
            for turn in [0, 1, 1, 0] {
                let which = (pair + 1 + turn) % 2;
                let (name, run) = &peers[which];
                let one = undisturbed(what, name, run)?;
                eprintln!("pair {pair} {what} {name}: {:.1}, {:.1}", one[0], one[1]);
                both[which].push(one);
            }
            for (all, two) in runs.iter_mut().zip(both) {
                all.push([two[0], two[1]]);
            }
        }
        Ok(Self::from_twice(peers.each_ref().map(|peer| peer.0), &runs))
    }

    /// Makes of two runs for each peer and pair what [`mirrored`](Self::mirrored) returns.
    fn from_twice(names: [&str; 2], runs: &[Vec<[Figures; 2]>; 2]) -> [Self; 2] {
        let mean = |two: &[Figures; 2]| [0, 1].map(|which| (two[0][which] + two[1][which]) / 2.0);
        let means = |nth: usize| {
            let all = runs[nth].iter().map(mean).collect();
            (names[nth].to_owned(), all)
        };
        let single = |nth: usize, name: &str| {
            let all = runs[0].iter().map(|two| two[nth]).collect();
            (name.to_owned(), all)
        };
        let beside = Self {
            rows: vec![means(0), means(1)],
        };
        let noise = Self {
            rows: vec![
                single(0, names[0]),
                single(1, &format!("{} (again)", names[0])),
            ],
        };
        [beside, noise]
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
        self.rows.iter().map(|(name, all)| Row {
            name,
            figures: [0, 1].map(|which| spread(all.iter().map(|one| one[which]))[1]),
            ratios: [0, 1].map(|which| {
                let pairs = self.rows[0].1.iter().zip(all);
                spread(pairs.map(|(ours, theirs)| ours[which] / theirs[which]))[1]
            }),
        })
    }
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
    fn who_runs_twice_in_a_pair_counts_by_the_mean() {
        let ours = vec![[[4.0, 1.0], [2.0, 3.0]]];
        let theirs = vec![[[1.0, 2.0], [2.0, 2.0]]];
        let [beside, noise] = Turns::from_twice(["now", "before"], &[ours, theirs]);
        assert_eq!(beside.rows().nth(1).unwrap().ratios, [2.0, 1.0]);
        let again = noise.rows().nth(1).unwrap();
        assert_eq!(
            (again.name, again.ratios),
            ("now (again)", [2.0, 1.0 / 3.0])
        );
    }

    #[test]
    fn mirrored_runs_lie_around_each_other() {
        let order = std::cell::RefCell::new(String::new());
        let run = |name: char| {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                Ok([1.0; 2])
            }) as Run<'_>
        };
        Turns::mirrored("a test", 2, &[("now", run('n')), ("before", run('b'))]).unwrap();
        assert_eq!(*order.borrow(), "nbbnbnnb");
    }
}
