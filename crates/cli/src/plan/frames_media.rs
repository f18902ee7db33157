//! Where frames come from, and where they go.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use gauge::frames::{Container, FilmPlace, Header, Shape};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::{
    args::{FrameSize, FramesFrom, FramesTo, PerSecond},
    failure::Failure,
};

/// Where frames come from.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum FrameSourcePlan {
    /// Generated frames: a frame's bytes follow from its number and the seed.
    Pattern { size: FrameSize, seed: u64 },
    /// A stream of frames with a Y4M header.
    Y4m { path: PathBuf },
    /// A stream of frames without a header.
    Raw {
        path: PathBuf,
        /// How to read the stream's frames.
        #[serde(serialize_with = "line")]
        #[schemars(with = "String")]
        header: Header,
    },
}

impl FrameSourcePlan {
    pub(crate) fn new(
        args: &FramesFrom,
        size: FrameSize,
        seed: u64,
        per_second: Option<PerSecond>,
    ) -> Result<Self, Failure> {
        if let Some(path) = &args.y4m {
            return Ok(Self::Y4m { path: path.clone() });
        }
        let (Some(path), Some(width), Some(height), Some(format)) =
            (&args.raw, args.width, args.height, args.pixel_format)
        else {
            return Ok(Self::Pattern { size, seed });
        };
        let shape = Shape::new(width, height, format);
        let shape = shape.map_err(|error| Failure::usage(format!("--raw: {error}")))?;
        let rate = per_second.unwrap_or(PerSecond::USUAL).rate();
        Ok(Self::Raw {
            path: path.clone(),
            header: Header::new(shape, rate),
        })
    }
}

/// Where received frames go. If they go nowhere, they are only counted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FrameSinkPlan {
    pub(crate) film: Option<FilmPlan>,
    /// The address at which browsers see the frames.
    pub(crate) preview: Option<SocketAddr>,
    /// The terminal shows the frames.
    pub(crate) is_displayed: bool,
}

/// Which frames are kept.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum FilmPlan {
    /// All frames, in one file; `-` is standard output.
    All { path: PathBuf, is_raw: bool },
    /// The last `frames` frames, each in a file of its own in `directory`.
    Last { directory: PathBuf, frames: usize },
}

impl FrameSinkPlan {
    pub(crate) fn new(args: &FramesTo) -> Result<Self, Failure> {
        let film = match (&args.output, args.last) {
            (None, _) => None,
            (Some(path), Some(_)) if path == Path::new(STDOUT) => {
                return Err(Failure::usage(
                    "--last keeps files: name a directory as --output",
                ));
            }
            (Some(directory), Some(frames)) => Some(FilmPlan::Last {
                directory: directory.clone(),
                frames: frames.into(),
            }),
            (Some(path), None) => {
                let is_called_raw = path.extension() == Some(OsStr::new("raw"));
                let usual = if is_called_raw {
                    Container::Raw
                } else {
                    Container::Y4m
                };
                let container = args.container.map_or(usual, Into::into);
                Some(FilmPlan::All {
                    path: path.clone(),
                    is_raw: container == Container::Raw,
                })
            }
        };
        let plan = Self {
            film,
            preview: args.preview,
            is_displayed: args.display,
        };
        if plan.is_displayed && plan.takes_stdout() {
            let text = "--display draws on standard output, where --output - writes: leave one out";
            return Err(Failure::usage(text));
        }
        Ok(plan)
    }

    /// Returns true when frames go to standard output. Then nothing else may be written there.
    pub(crate) fn takes_stdout(&self) -> bool {
        let is_stdout = |film: &FilmPlan| match film {
            FilmPlan::All { path, .. } => path == Path::new(STDOUT),
            FilmPlan::Last { .. } => false,
        };
        self.film.as_ref().is_some_and(is_stdout)
    }
}

impl FilmPlan {
    /// Makes the place to which frames are written. If all frames go into one file, opens that
    /// file.
    pub(crate) fn open(&self) -> Result<FilmPlace, Failure> {
        let (path, is_raw) = match self {
            Self::Last { directory, frames } => {
                return Ok(FilmPlace::Last {
                    directory: directory.clone(),
                    frames: *frames,
                });
            }
            Self::All { path, is_raw } => (path, *is_raw),
        };
        let container = if is_raw {
            Container::Raw
        } else {
            Container::Y4m
        };
        if path == Path::new(STDOUT) {
            return Ok(FilmPlace::Stream {
                output: Box::new(io::stdout()),
                container,
            });
        }
        let file = File::create(path)
            .map_err(|error| Failure::system(&format!("writing {}", path.display()), &error))?;
        Ok(FilmPlace::Stream {
            output: Box::new(file),
            container,
        })
    }
}

fn line<S: Serializer>(header: &Header, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(header.line())
}

const STDOUT: &str = "-";
