//! The preview of frames in a real browser.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use towline_gauge::frames::{FramePattern, PixelFormat, Preview, Shape};

#[test]
fn a_browser_shows_the_frames_and_their_line() {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| {
            let version = Command::new(name).arg("--version").output();
            version.is_ok_and(|it| it.status.success())
        });
    let Some(browser) = browser else {
        println!("skipped: no chromium to open the page with");
        return;
    };
    let preview = Preview::start(([127, 0, 0, 1], 0).into()).unwrap();
    preview.tell("20.0 frames/s, none lost");
    let is_over = AtomicBool::new(false);
    let page = thread::scope(|scope| {
        scope.spawn(|| feed(&preview, &is_over));
        // The moving picture never ends: the browser is told to stop after a while.
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
            .args(["--timeout=4000", "--virtual-time-budget=2000"])
            .arg(format!("http://{}/", preview.address()))
            .output();
        is_over.store(true, Ordering::Relaxed);
        output.unwrap().stdout
    });
    let page = String::from_utf8_lossy(&page);
    assert!(
        page.contains("<title>320 x 240: frames of Towline</title>"),
        "the browser has drawn a frame: {page}"
    );
    assert!(page.contains("20.0 frames/s, none lost"), "{page}");
}

/// Offers frames as a receiver does, until the test is over.
fn feed(preview: &Preview, is_over: &AtomicBool) {
    let shape = Shape::new(320, 240, PixelFormat::Mono16).unwrap();
    let pattern = FramePattern::new(1);
    let mut frame = vec![0; shape.frame_bytes()];
    for number in 0.. {
        pattern.fill(number, 0, &mut frame);
        preview.offer(shape, &frame);
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
}
