//! Where frames come from, and where they go.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf};

use clap::Args;
use gauge::frames::{Container, PixelFormat};

use super::{metrics_address, mirror::mirror};

/// Where `frames send` takes frames from.
#[derive(Debug, Args)]
pub(crate) struct FramesFrom {
    /// Send the frames of a Y4M file, or of Y4M on standard input (-), instead of a pattern
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["size", "seed", "raw"])]
    pub(crate) y4m: Option<PathBuf>,
    /// Send the frames of a file without headers, or of standard input (-), instead of a pattern;
    /// needs --width, --height and --pixel-format
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["size", "seed"],
          requires_all = ["width", "height", "pixel_format"])]
    pub(crate) raw: Option<PathBuf>,
    /// Width of the frames of --raw, in pixels
    #[arg(long, value_name = "PIXELS", requires = "raw")]
    pub(crate) width: Option<u32>,
    /// Height of the frames of --raw, in lines
    #[arg(long, value_name = "LINES", requires = "raw")]
    pub(crate) height: Option<u32>,
    /// What the bytes of --raw mean: Mono8, Mono10, Mono12, Mono16, Mono12Packed, Mono12p, RGB8,
    /// I420, I422 or I444
    #[arg(long, value_name = "FORMAT", requires = "raw")]
    pub(crate) pixel_format: Option<PixelFormat>,
}

/// Where `frames recv` puts frames.
#[derive(Debug, Args)]
pub(crate) struct FramesTo {
    /// Write whole frames to this file, or to standard output (-); with --last, to files in this
    /// directory
    #[arg(long, short, value_name = "FILE|DIR|-")]
    pub(crate) output: Option<PathBuf>,
    /// Format of --output [default: y4m; raw where FILE ends with .raw]
    #[arg(
        long = "as",
        value_enum,
        value_name = "KIND",
        requires = "output",
        conflicts_with = "last"
    )]
    pub(crate) container: Option<ContainerArg>,
    /// Keep only the last N frames, each as a file in the directory of --output
    #[arg(long, value_name = "N", requires = "output")]
    pub(crate) last: Option<NonZeroUsize>,
    /// Show the frames to browsers at http://ADDRESS:PORT/; with a port alone, only to browsers on
    /// this machine (127.0.0.1)
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics_address)]
    pub(crate) preview: Option<SocketAddr>,
    /// Show the frames in the terminal; q ends the command
    #[arg(long)]
    pub(crate) display: bool,
}

mirror! {
    /// The format of a file with frames.
    ContainerArg of Container {
        /// Y4M: a header line, and a line before each frame
        Y4m,
        /// The frames' bytes alone
        Raw,
    }
}
