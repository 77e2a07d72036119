//! Any other path: one line that names it, so that there is no path that the origin has not.

use crate::answer::Answer;
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::site::Site;

/// One line of text that names the path.
pub(crate) fn path<'a>(request: &Request<'a>, _site: &mut Site) -> Result<Plan<'a>, Refusal<'a>> {
    Ok(Plan::Answer(Answer::path(request.path)))
}
