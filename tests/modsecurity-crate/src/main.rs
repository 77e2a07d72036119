//! Blocks a request, and prints what comes back.

use std::error::Error;

use modsecurity::{ModSecurity, Rules};

fn main() -> Result<(), Box<dyn Error>> {
    let server = ModSecurity::builder()
        .with_connector_info("modsecurity-crate v0")?
        .with_log_callbacks()
        .build();
    println!("{}", server.whoami());
    let mut rules = Rules::new();
    match rules.add_plain("SecRuel ARGS a") {
        Ok(()) => println!("accepted"),
        Err(error) => println!("refused: {error}"),
    }
    rules.add_plain(
        r#"
SecRuleEngine On
SecRequestBodyAccess On
SecRule REQUEST_URI "@contains admin" "id:1,phase:1,pass,log,msg:'admin'"
SecRule ARGS:a "@streq b" "id:2,phase:2,redirect:https://www.example.com/,status:301,log"
"#,
    )?;
    let mut transaction = server
        .transaction_builder()
        .with_rules(&rules)
        .with_id("id-1")
        .with_logging(|line| println!("log: {}", line.unwrap_or("-")))
        .build()?;
    transaction.process_connection("192.0.2.7", 1234, "127.0.0.1", 80)?;
    transaction.process_uri("/admin", "POST", "1.1")?;
    transaction.add_request_header("Content-Type", "application/x-www-form-urlencoded")?;
    transaction.process_request_headers()?;
    println!("early: {}", transaction.intervention().is_some());
    transaction.append_request_body(b"a=b")?;
    transaction.process_request_body()?;
    println!("body: {}", transaction.get_request_body_length());
    let intervention = transaction.intervention().ok_or("not blocked")?;
    println!("{} {}", intervention.status(), intervention.url().unwrap_or("-"));
    Ok(())
}
