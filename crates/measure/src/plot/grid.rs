//! Points over time, counted in the cells of a grid.

use super::Axis;

/// One value at one time, both in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The time.
    pub at_ns: u64,
    /// The value.
    pub value_ns: u64,
}

/// Counts by time and value.
///
/// **Shape**: `columns` of time, each with `rows` of values from the lowest up. A value beyond the
/// axis counts in the lowest or the highest row, so no point is ever left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    columns: usize,
    rows: usize,
    lasted_ns: u64,
    axis: Axis,
    counts: Vec<u32>,
}

impl Grid {
    /// Makes an empty grid for times from 0 to `lasted_ns` and values along `axis`.
    #[must_use]
    pub fn new(columns: usize, rows: usize, lasted_ns: u64, axis: Axis) -> Self {
        let (columns, rows) = (columns.max(1), rows.max(1));
        Self {
            columns,
            rows,
            lasted_ns: lasted_ns.max(1),
            axis,
            counts: vec![0; columns * rows],
        }
    }

    /// Counts a point.
    pub fn take(&mut self, point: Point) {
        let column = u128::from(point.at_ns) * self.columns as u128 / u128::from(self.lasted_ns);
        let column = usize::try_from(column).map_or(self.columns - 1, |c| c.min(self.columns - 1));
        let place = self.axis.place(point.value_ns as f64).clamp(0.0, 1.0);
        let row = ((place * self.rows as f64) as usize).min(self.rows - 1);
        self.counts[column * self.rows + row] += 1;
    }

    /// Returns the count of a cell.
    ///
    /// **Panics** (bug): when there is no such cell.
    #[must_use]
    pub fn count(&self, column: usize, row: usize) -> u32 {
        assert!(row < self.rows, "the grid has {} rows", self.rows);
        self.counts[column * self.rows + row]
    }

    /// Returns the greatest count of all cells.
    #[must_use]
    pub fn count_max(&self) -> u32 {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    /// Returns the number of all points.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Returns the numbers of columns and of rows.
    #[must_use]
    pub const fn shape(&self) -> (usize, usize) {
        (self.columns, self.rows)
    }

    /// Returns the axis of values.
    #[must_use]
    pub const fn axis(&self) -> Axis {
        self.axis
    }

    /// Returns the end of the time axis, in nanoseconds.
    #[must_use]
    pub const fn lasted_ns(&self) -> u64 {
        self.lasted_ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_point_is_where_it_belongs() {
        let axis = Axis {
            scale: Scale::Log,
            min: 1_000.0,
            max: 1_000_000.0,
        };
        let mut grid = Grid::new(10, 3, 1_000, axis);
        for (at_ns, value_ns) in [(0, 2_000), (999, 20_000), (500, 900_000)] {
            grid.take(Point { at_ns, value_ns });
        }
        assert_eq!(grid.count(0, 0), 1);
        assert_eq!(grid.count(9, 1), 1);
        assert_eq!(grid.count(5, 2), 1);
    }

    proptest! {
        #[test]
        fn no_point_is_left_out(points in proptest::collection::vec(any::<(u64, u64)>(), 0..50)) {
            let mut grid = Grid::new(7, 5, 1_000, Axis::around(Scale::Log, 10.0, 1e6));
            for &(at_ns, value_ns) in &points {
                grid.take(Point { at_ns, value_ns });
            }
            prop_assert_eq!(grid.total(), points.len() as u64);
        }
    }
}
