//! Request smuggling, and its mirror image in answers. The tables say what is sent and what must come of it.

mod answers;
mod case;
mod limits;
mod on_answers;
mod on_requests;
mod origin;
mod outcome;
mod requests;
