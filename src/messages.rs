//! What the daemon says: one line an event, with the fields it is about at its end.
//!
//! Everybody says something through the `log` crate; what is about a disk goes through [`event`], which adds the fields of
//! an [`About`]. `daemon` starts the log and runs the thread that writes it. Nobody who says something waits for the
//! writing. Locks: two short ones, the limiter's before the queue's, never over a system call once that thread runs, so
//! something may be said under any other.

use std::fmt::Write as _;
use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use log::kv::{Key, Value, VisitSource};
use log::{Level, Metadata, Record};
use parking_lot::Mutex;

pub use about::About;
use limit::{Kind, Limiter, Notice};
use queue::Queue;

mod about;
mod limit;
mod queue;

/// How long an end waits for what has not been written.
const FLUSH_BOUND: Duration = Duration::from_secs(1);
/// Between two looks for counts that are due.
const TICK: Duration = Duration::from_secs(1);

static MESSAGES: OnceLock<Messages> = OnceLock::new();

/// `event!(Warn, disk.about().error(&error), "the sentence {}", ..)`: a message with fields. They are made only if it is
/// wanted.
macro_rules! event {
    ($level:ident, $about:expr, $($sentence:tt)+) => {
        if log::Level::$level <= log::max_level() {
            $crate::messages::say(
                log::Level::$level,
                &$about,
                format_args!($($sentence)+),
                (module_path!(), file!(), line!()),
            );
        }
    };
}
pub(crate) use event;

/// What [`event`] does.
pub fn say(level: Level, about: &About, sentence: std::fmt::Arguments<'_>, place: (&'static str, &'static str, u32)) {
    let (module, file, line) = place;
    let mut record = Record::builder();
    record.level(level).target(module).module_path_static(Some(module)).file_static(Some(file)).line(Some(line));
    log::logger().log(&record.key_values(about).args(sentence).build());
}

/// How a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With date, level and module.
    Dated,
    /// With the level as sd-daemon(3) has it; the journal adds the rest.
    Journal,
}

/// Takes messages from now on. Until [`write_out`] runs they are written at once.
pub fn start(filter: env_logger::Logger, form: Form, sink: Box<dyn io::Write + Send>) {
    let level = filter.filter();
    let limiter = Mutex::new(Limiter::default());
    let messages = Messages { filter, form, limiter, began: Instant::now(), queue: Queue::new(sink) };
    // Only a second start in one process finds one there, and then the first one's log serves both.
    if MESSAGES.set(messages).is_ok()
        && let Some(messages) = MESSAGES.get()
        && log::set_logger(messages).is_ok()
    {
        log::set_max_level(level);
    }
}

/// The work of the thread that writes what was said. Never ends.
pub fn write_out() {
    let Some(messages) = MESSAGES.get() else {
        return;
    };
    loop {
        messages.queue.write(TICK, |lost| {
            let sentence = format!("{lost} messages were lost, since the log did not take them in time");
            messages.line(Level::Warn, module_path!(), &sentence, "")
        });
        // Pushed with the lock held, so that a flush does not come between.
        let mut limiter = messages.limiter.lock();
        messages.push_notices(limiter.due(messages.began.elapsed()));
    }
}

/// Waits until what was said is written, but not long, and says what is still to be counted.
pub fn flush() {
    log::logger().flush();
}

struct Messages {
    filter: env_logger::Logger,
    form: Form,
    limiter: Mutex<Limiter>,
    began: Instant,
    queue: Queue,
}

impl log::Log for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.filter.matches(record) {
            return;
        }
        let mut fields = Fields::default();
        let _ = record.key_values().visit(&mut fields);
        let sentence = record.args().to_string();
        // Who asks for debug messages wants all of them.
        if record.level() <= Level::Info {
            let kind = Kind::new(record.file().unwrap_or_default(), record.line().unwrap_or_default(), &fields.disk);
            let notice = || Notice::new(record.level(), record.target(), &sentence, &fields.disk);
            let verdict = self.limiter.lock().admit(kind, self.began.elapsed(), notice);
            self.push_notices(verdict.due);
            if !verdict.admitted {
                return;
            }
        }
        self.queue.push(self.line(record.level(), record.target(), &sentence, &fields.all));
    }

    fn flush(&self) {
        let due = self.limiter.lock().all();
        self.push_notices(due);
        self.queue.flush(FLUSH_BOUND);
    }
}

impl Messages {
    fn push_notices(&self, notices: impl IntoIterator<Item = Notice>) {
        for notice in notices {
            self.queue.push(self.line(notice.level, &notice.target, &notice.sentence(), &notice.disk));
        }
    }

    fn line(&self, level: Level, target: &str, sentence: &str, fields: &str) -> String {
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        line(self.form, &now, level, target, sentence, fields)
    }
}

/// The fields of a record, each with a blank before it.
#[derive(Default)]
struct Fields {
    all: String,
    /// Those that say which disk.
    disk: String,
}

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
        let field = format!(" {key}={value}");
        if matches!(key.as_str(), about::DISK | about::UUID) {
            self.disk.push_str(&field);
        }
        self.all.push_str(&field);
        Ok(())
    }
}

fn line(form: Form, now: &dyn std::fmt::Display, level: Level, target: &str, sentence: &str, fields: &str) -> String {
    let mut line = match form {
        Form::Dated => format!("[{now} {level:<5} {target}] "),
        Form::Journal => format!("<{}>", priority(level)),
    };
    let _ = write!(line, "{}{}", printable(sentence), printable(fields));
    line.push('\n');
    line
}

/// As syslog(3) has it.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// A text that cannot break a line, a column or a terminal: control characters are escaped.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn fields_of(about: &About) -> Fields {
        let mut fields = Fields::default();
        log::kv::Source::visit(about, &mut fields).unwrap();
        fields
    }

    #[test]
    fn a_line_is_a_sentence_and_its_fields() {
        let id = uuid::Uuid::from_u128(7);
        let about = About::disk("/disks/a".as_ref(), id).path(b"dir/K.data").error(&io::Error::from_raw_os_error(5));
        let line = line(Form::Dated, &NOW, Level::Warn, "kvspan::volume", "the file stays", &fields_of(&about).all);
        assert_eq!(
            line,
            "[2026-01-02T03:04:05Z WARN  kvspan::volume] the file stays \
             disk=/disks/a uuid=00000000-0000-0000-0000-000000000007 path=dir/K.data errno=EIO\n"
        );
        assert_eq!(fields_of(&about).disk, " disk=/disks/a uuid=00000000-0000-0000-0000-000000000007");
    }

    #[test]
    fn the_journal_gets_priorities_and_no_date() {
        let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
        let lines = levels.map(|level| line(Form::Journal, &NOW, level, "kvspan::daemon", "mounted", " disk=/a"));
        assert_eq!(lines, ["<3>", "<4>", "<6>", "<7>", "<7>"].map(|prefix| format!("{prefix}mounted disk=/a\n")));
    }

    #[test]
    fn nothing_breaks_a_line() {
        let about = About::disk("/a\nb".as_ref(), uuid::Uuid::nil()).path(b"x\n<3>\x1b[2J y");
        for form in [Form::Dated, Form::Journal] {
            let line = line(form, &NOW, Level::Info, "t", "two\nlines\r\x1b", &fields_of(&about).all);
            assert!(line.ends_with('\n') && !line.trim_end_matches('\n').contains(char::is_control), "{line:?}");
        }
    }
}
