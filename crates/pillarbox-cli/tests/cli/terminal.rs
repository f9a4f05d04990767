//! What a terminal shows: `script` makes one, with the command inside.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use pillarbox::prelude::*;

use super::inbox::Place;
use super::list::{claimed, fail, settle};

/// A command on a terminal of its own, and what it has drawn there so far.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    drawn: String,
}

impl Terminal {
    fn run(arguments: &[&str]) -> Self {
        let words: Vec<_> = arguments.iter().map(|word| format!("'{word}'")).collect();
        let line = format!("stty rows 24 cols 100; exec '{}' {}", env!("CARGO_BIN_EXE_pillarbox"), words.join(" "));
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("TERM", "xterm")
            .env_remove("NO_COLOR");
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, keys, screen, drawn: String::new() }
    }

    /// Waits until it has drawn this.
    fn until(&mut self, words: &str) {
        let mut piece = [0; 4_096];
        while !self.drawn.contains(words) {
            let size = self.screen.read(&mut piece).unwrap();
            assert_ne!(size, 0, "it has ended: {}", self.drawn);
            self.drawn.push_str(&String::from_utf8_lossy(&piece[..size]));
        }
    }

    /// Waits for its end; the exit code, and all that it has drawn.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut rest = Vec::new();
        self.screen.read_to_end(&mut rest).unwrap();
        self.drawn.push_str(&String::from_utf8_lossy(&rest));
        (self.child.wait().unwrap().code(), std::mem::take(&mut self.drawn))
    }
}

/// `top` shows what is in the store, goes on looking, and leaves the terminal as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_is_a_living_picture() {
    let place = Place::sqlite();
    place.run(&["migrate"]);
    let store = place.store().await;
    store.enqueue(Enqueue::pending(&[Message::new("order.created", "")])).await.unwrap();
    let mut terminal = Terminal::run(&["top", "--interval", "1", "--url", place.url()]);
    terminal.until("order.created");
    store.enqueue(Enqueue::pending(&[Message::new("order.paid", "")])).await.unwrap();
    terminal.until("order.paid");
    terminal.keys.write_all(b"q").unwrap();
    let (code, drawn) = terminal.ended();
    assert_eq!(code, Some(0), "{drawn}");
    assert!(drawn.contains("\x1b[?1049h") && drawn.trim_end().ends_with("\x1b[?25h"), "{drawn:?}");
    assert!(drawn.contains("\x1b[?1049l"), "{drawn:?}");
}

/// BUS-10: who changes many messages sees how far it is; at the end nothing of that is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_many_messages_shows_a_bar() {
    let place = Place::sqlite();
    place.run(&["migrate"]);
    let store = place.store().await;
    let messages: Vec<_> = (0..1_500).map(|_| Message::new("order.created", "")).collect();
    let (owner, held) = claimed(&*store, &messages).await;
    settle(&*store, owner, &held, fail("x")).await;
    let (code, drawn) = Terminal::run(&["dead", "replay", "--yes", "--url", place.url()]).ended();
    assert_eq!(code, Some(0), "{drawn}");
    let bar = format!("{}{}  66 %   replayed 1,000 of 1,500", "█".repeat(20), "░".repeat(10));
    assert!(drawn.contains(&format!("\r\x1b[K{bar}\r\x1b[K")), "{drawn:?}");
    assert!(drawn.trim_end().ends_with(": replayed 1,500 messages"), "{drawn:?}");
    let (_, drawn) = Terminal::run(&["dead", "replay", "--yes", "--json", "--url", place.url()]).ended();
    assert!(drawn.starts_with('{'), "{drawn:?}");
}

/// Health is coloured on a terminal, and nowhere else.
#[test]
fn colours_are_for_terminals() {
    let place = Place::sqlite();
    place.run(&["migrate"]);
    let (code, drawn) = Terminal::run(&["doctor", "--url", place.url()]).ended();
    assert_eq!(code, Some(0), "{drawn}");
    assert!(drawn.contains("\x1b[") && drawn.contains("✓ schema"), "{drawn:?}");
    assert!(!place.run(&["doctor"]).1.contains('\x1b'));
}
