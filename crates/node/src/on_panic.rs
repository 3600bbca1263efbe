//! Telling of a panic in one of the node's own threads: a broken law, after which whoever waits for that thread would wait for ever.

/// What a thread's end by a panic is called.
pub(crate) const BROKEN: &str = "a law was broken, which is a bug; standard error says which and where";

/// Does something if the thread that holds it panics.
pub(crate) struct OnPanic<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OnPanic;
    use std::sync::mpsc;

    #[test]
    fn it_tells_of_a_panic_and_of_no_other_end() {
        for panics in [true, false] {
            let (told, hears) = mpsc::channel();
            let thread = std::thread::spawn(move || {
                let _told = OnPanic(|| told.send(()).expect("somebody listens"));
                assert!(!panics, "as the test wants it");
            });
            assert_eq!(thread.join().is_err(), panics);
            assert_eq!(hears.recv().is_ok(), panics);
        }
    }
}
