package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/demo"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/serving"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/deploy/embedded/console"
	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
)

type demoFlags struct {
	dir, listen, http string
	nodes, cores      int
	log               serving.Log
}

func (a *app) demoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole cluster in this process, for trials",
		Long: `Run a whole cluster in this process: a consistent core and some data nodes, which
communicate as on separate machines. The web console shows the cluster; its address is printed
first. The cluster stops at Ctrl-C (a second Ctrl-C ends it at once).
The data stay in --dir, and the same command with the same --dir goes on where it stopped.`,
		Example: `  tidemark demo
  tidemark demo --dir ~/tidemark-data --nodes 5 --cores 3
  tidemark demo --http 127.0.0.1:8080      # another address for the web console`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error { return a.demo(ctx, f) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "", "directory of the data (default: a new temporary one)")
	flags.IntVar(&f.nodes, "nodes", 3, "number of data nodes")
	flags.IntVar(&f.cores, "cores", 1, "number of core servers: 1, 3 or 5")
	flags.StringVar(&f.listen, "listen", defaultEndpoint,
		"address of the first server; the others take the ports after it; port 0 takes free ones")
	flags.StringVar(&f.http, "http", "",
		"address of the web console, metrics, health and profiles, or none (default: "+
			demoHTTP+", or another port if that is taken)")
	f.log.Register(cmd)
	_ = cmd.MarkFlagDirname("dir")
	return a.printing(cmd)
}

// demoHTTP is the default address of the console.
const demoHTTP = "127.0.0.1:7480"

// chooseHTTP sets f.http to an address that can be listened on, or to an empty text for no console.
func (f *demoFlags) chooseHTTP() error {
	switch f.http {
	case "none":
		f.http = ""
		return nil
	case "":
	default:
		if host, port, err := net.SplitHostPort(f.http); err == nil && port == "0" && host != "" {
			return nil
		}
		return argument.CheckAddress("--http", f.http, true)
	}
	f.http = demoHTTP
	l, err := net.Listen("tcp", f.http)
	if err != nil {
		f.http = "127.0.0.1:0" // another demo uses the address
		return nil
	}
	return l.Close()
}

func (a *app) demo(ctx context.Context, f demoFlags) error {
	switch {
	case f.nodes < 1 || f.nodes > 100:
		return exit.Usagef("--nodes %d: use 1 to 100", f.nodes)
	case f.cores != 1 && f.cores != 3 && f.cores != 5:
		return exit.Usagef("--cores %d: a core has 1, 3 or 5 servers", f.cores)
	}
	if host, port, err := net.SplitHostPort(f.listen); err != nil || port != "0" ||
		argument.Unspecified(host) {
		if err := argument.CheckAddress("--listen", f.listen, false); err != nil {
			return err
		}
	}
	if err := f.chooseHTTP(); err != nil {
		return err
	}
	logger, err := f.log.Logger(a.err)
	if err != nil {
		return err
	}
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "tidemark-demo-"); err != nil {
			return fmt.Errorf("making a temporary directory for the data: %w; give one with --dir", err)
		}
	}
	words := a.out // where the text around tables goes
	if a.format != output.Table {
		words = io.Discard
	}
	fmt.Fprintf(words, "data in %s\n", f.dir)
	fmt.Fprintf(words, "starting %s and %s\n", plural(f.cores, "core server"),
		plural(f.nodes, "data node"))
	began := time.Now()
	memory.TuneCollector(memory.Collector{GOGC: os.Getenv("GOGC"),
		GOMEMLIMIT: os.Getenv("GOMEMLIMIT"), Limit: embedded.MemoryLimit(0)})
	var buttons *demo.Buttons // nil without the console
	cluster, err := embedded.StartCluster(ctx, embedded.ClusterConfig{
		Dir: f.dir, Nodes: f.nodes, Cores: f.cores, Listen: f.listen, HTTP: f.http, Logger: logger,
		Version: buildVersion(), ConsoleAdmin: true,
		Demo: func(c *embedded.Cluster) console.Demo {
			buttons = demo.New(c)
			return buttons
		},
	})
	if err != nil {
		return err
	}
	f.http = cluster.HTTPAddress()
	err = cluster.WaitReady(ctx)
	if err == nil {
		a.welcome(f, cluster.Endpoints(), time.Since(began))
		<-ctx.Done()
		fmt.Fprintln(words, "\nstopping")
	}
	if buttons != nil {
		buttons.Close()
	}
	if closeErr := cluster.Close(); err == nil && closeErr != nil {
		return fmt.Errorf("the cluster did not stop cleanly; its data are safe: %w", closeErr)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(words, "the data are in %s; go on with: tidemark demo --dir %s\n", f.dir,
		shellQuote(f.dir))
	return nil
}

// welcome says that the cluster is ready, and which commands to try.
func (a *app) welcome(f demoFlags, endpoints []string, took time.Duration) {
	if a.format != output.Table {
		list := a.list(output.Column{Name: "ready"}, output.Column{Name: "endpoints"},
			output.Column{Name: "data"}, output.Column{Name: "http"})
		list.Row(true, endpoints, f.dir, orNone(f.http))
		_ = list.Flush() // a server does not end if its output is not read
		return
	}
	if f.http != "" {
		fmt.Fprintf(a.out, "console on http://%s/\n", f.http)
	}
	fmt.Fprintf(a.out, "ready after %.1f s on %s\n", took.Seconds(), strings.Join(endpoints, ", "))
	option := ""
	if f.listen != defaultEndpoint {
		option = " --endpoints " + endpoints[0]
	}
	fmt.Fprintf(a.out, `
Try, in another terminal:

    tidemark keyspace create fruit --partitions hash:8%[1]s
    tidemark put fruit apple green%[1]s
    tidemark get fruit apple%[1]s
    printf '%%s\n' begin 'put fruit apple red' 'put fruit pear ripe' commit | tidemark txn%[1]s
    tidemark scan fruit%[1]s
    tidemark partitions fruit%[1]s
    tidemark bench put --clients 64%[1]s

It also is an etcd, for locks, leases and configuration, at the same address:

    etcdctl --endpoints %[2]s put a b
    tidemark lock job%[1]s -- echo only one at a time
    curl http://%[2]s/health

Ctrl-C stops the cluster.
`, option, endpoints[0])
}

func plural[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// shellQuote quotes a word so that a shell does not change it.
func shellQuote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-:=@%+,"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
