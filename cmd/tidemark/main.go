// Command tidemark is the whole of Tidemark in one binary: servers, administration, data verbs and
// benchmarks.
//
// It turns flags into calls of the SDK (kv), of the wiring (deploy/embedded) and of the load
// generator (bench), and what comes back into words. There is one file for each verb; a verb is a
// method of app that returns its cobra.Command. No verb reads os.Args, the environment or the
// standard streams itself: they come in through app, so that tests run verbs in the process, many
// at once.
//
// Errors are readable: what happened, to what, and what to do. internal/exit maps them to exit
// codes, and internal/argument reads what flags and arguments mean.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/serving"
)

// version is set by the build (make build); without it the module's own version is shown.
var version string

func main() {
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
