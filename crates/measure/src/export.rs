//! A result as a file that other programs read: pictures, an HdrHistogram log, CSV.

use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

use crate::{
    Series,
    plot::{self, Options},
    write_log,
};

/// The format that a result is exported in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A picture of dots.
    Png,
    /// A picture of lines and letters.
    Svg,
    /// A page with a read-out under the pointer.
    Html,
    /// An HdrHistogram interval log: each series' round trips from intended and from actual times.
    HdrLog,
    /// A line for each message.
    Csv,
}

impl Format {
    /// Returns the format that a file's name asks for: `.png`, `.svg`, `.html`, `.hlog` or `.csv`.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "png" => Some(Self::Png),
            "svg" => Some(Self::Svg),
            "html" => Some(Self::Html),
            "hlog" => Some(Self::HdrLog),
            "csv" => Some(Self::Csv),
            _ => None,
        }
    }

    /// Returns true for the formats of pictures.
    #[must_use]
    pub const fn is_picture(self) -> bool {
        matches!(self, Self::Png | Self::Svg | Self::Html)
    }

    /// The names that [`Format::of`] understands.
    pub const NAMES: &'static str = ".png, .svg, .html, .hlog or .csv";
    /// The names of the formats that are pictures.
    pub const PICTURE_NAMES: &'static str = ".png, .svg or .html";
}

/// Writes results in a format. With `with_hops`, a picture does not show the round trips, but where
/// the time of the stamped messages went.
///
/// # Errors
/// When `output` fails, or for a picture `with_hops` when no message was stamped.
pub fn export(
    output: &mut impl Write,
    format: Format,
    series: &[Series<'_>],
    options: &Options,
    with_hops: bool,
) -> io::Result<()> {
    let scene = || {
        if with_hops {
            plot::hops(series, options).ok_or_else(|| {
                io::Error::other(
                    "no message was stamped: measure again over UDP, with the engine recv or \
                     epoll, and with --stamp-every of 1 or more",
                )
            })
        } else {
            Ok(plot::figure(series, options))
        }
    };
    match format {
        Format::Png | Format::Svg | Format::Html => {
            write_picture(output, format, &scene()?, "towline rtt", &about(series))
        }
        Format::HdrLog => {
            let runs: Vec<_> = series
                .iter()
                .map(|one| {
                    let lasted = Duration::from_nanos(one.lasted_ns);
                    (one.name.clone(), lasted, one.latencies.clone())
                })
                .collect();
            write_log(output, &runs)
        }
        Format::Csv => csv(output, series),
    }?;
    output.flush()
}

/// Writes a picture; `about` stands below it on a page.
///
/// # Errors
/// When `output` fails, or when the format is not a picture.
pub fn write_picture(
    output: &mut impl Write,
    format: Format,
    scene: &plot::Scene,
    title: &str,
    about: &str,
) -> io::Result<()> {
    match format {
        Format::Png => output.write_all(&plot::png(scene)),
        Format::Svg => output.write_all(plot::svg(scene).as_bytes()),
        Format::Html => output.write_all(plot::html(scene, title, about).as_bytes()),
        Format::HdrLog | Format::Csv => {
            let text = format!(
                "this format is not a picture; use {}",
                Format::PICTURE_NAMES
            );
            Err(io::Error::other(text))
        }
    }
}

fn csv(output: &mut impl Write, series: &[Series<'_>]) -> io::Result<()> {
    writeln!(
        output,
        "run,sequence,intended_ns,sent_ns,rtt_ns,rtt_intended_ns"
    )?;
    for one in series {
        let name = format!("\"{}\"", one.name.replace('"', "\"\""));
        for (start, sample) in one.samples() {
            let cell = |ns: Option<u64>| ns.map(|ns| ns.to_string()).unwrap_or_default();
            writeln!(
                output,
                "{name},{},{},{},{},{}",
                sample.sequence,
                start.saturating_add(sample.intended_ns),
                start.saturating_add(sample.sent_ns),
                cell(sample.rtt_ns),
                cell(sample.rtt_intended_ns()),
            )?;
        }
    }
    Ok(())
}

/// Returns the manifests, as JSON for people.
fn about(series: &[Series<'_>]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for one in series {
        let text = serde_json::to_string_pretty(one.manifest).unwrap_or_default();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join("\n")
}
