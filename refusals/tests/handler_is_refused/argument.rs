use pillarbox::prelude::*;

fn refused(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.on_topic("mail.*", async |message: Message| {
        println!("{}", message.topic());
        Ok(())
    })
}

fn main() {}
