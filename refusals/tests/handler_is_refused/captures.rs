use pillarbox::prelude::*;

fn refused(builder: RuntimeBuilder, mailer: String) -> RuntimeBuilder {
    builder.on_topic("mail.*", async move |message: Raw| {
        println!("{mailer}: {}", message.topic());
        Ok(())
    })
}

fn main() {}
