//! A bench of a few replicas for tests: messages are passed by hand.
