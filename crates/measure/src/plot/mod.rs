//! Pictures of results: heat maps of round trips over time, cumulative shares, pacing errors.
//!
//! A picture is a [`Scene`]: a list of rectangles, lines, texts and maps in pixels. Every format
//! draws it: [`png()`], [`svg()`], and [`html()`] with a read-out under the pointer. A heat map can
//! also be printed to a terminal ([`terminal()`]).
//!
//! ```text
//!   raw::File --> Panel (points of one kind over time) --> Grid (counts) --> Scene --> bytes
//! ```
//! The crate uses no plotting library: it would draw a map of 100,000 cells as that many
//! rectangles, which makes an SVG of 20 MB. Here a map is one embedded image. The program carries
//! the font of a PNG's text.

mod axis;
pub use axis::{Axis, Scale};

mod bars;
pub use bars::{Bar, bars};

mod canvas;

mod figure;
pub use figure::{Options, View, figure, hops, sketch};

mod flow;
pub use flow::{FlowStep, flow};

mod font;

mod grid;
pub use grid::{Grid, Point};

mod html;
pub use html::html;

mod page;

mod palette;

mod png;
pub use png::png;

mod rates;

mod scene;
pub use scene::{Anchor, Item, Map, Scene};

mod sizes;
pub use sizes::{CallCurve, CallPoint, SizeCurve, SizePoint, calls, captures, sizes};

mod svg;
pub use svg::svg;

mod terminal;
pub use terminal::{TERMINAL_AXIS, terminal};
