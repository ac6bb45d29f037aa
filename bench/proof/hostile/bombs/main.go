package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/hostile/abuse"
)

func main() {
	addresses := flag.String("addresses", "127.0.0.1:7400", "addresses of servers, without TLS")
	duration := flag.Duration("duration", 20*time.Second, "how long the bombs go on")
	seed := flag.Uint64("seed", 1, "what acts are drawn from")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *duration)
	defer cancel()
	report := abuse.Run(ctx, abuse.Config{Seed: *seed, Parallel: 2, Longest: 10 * time.Second,
		Only: abuse.Bombs, Target: abuse.Target{Addresses: strings.Split(*addresses, ",")}})
	fmt.Printf("acts %v, %d bytes over %d connections\n", report.Acts, report.Bytes,
		report.Connections)
	if report.Found != nil {
		fmt.Fprintln(os.Stderr, "bombs:", report.Found)
		os.Exit(1)
	}
}
