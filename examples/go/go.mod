module carole.dev/examples/go

go 1.21
