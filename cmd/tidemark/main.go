package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/serving"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/watchdog"
)

// version is set by the build (make build). Without it, the go command has recorded one.
var version string

func main() {
	watchdog.Main() // if this process is a watchdog, it ends here
	serving.RestrictFiles()
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		// A second signal ends the process at once.
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		cancel()
	}()
	os.Exit(run(ctx, os.Args[1:], processStreams()))
}
