package faults

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/kv"
)

var (
	dumps = flag.Int("dump.times", 0,
		"how often TestDumpUnderTransactions dumps; 0: the test is skipped")
	dumpRows = flag.Int("dump.rows", 1_000_000,
		"how many accounts TestDumpUnderTransactions dumps")
	dumpClients = flag.Int("dump.clients", 64, "how many clients transfer money meanwhile")
	dumpHash    = flag.Int("dump.hash", 0,
		"of how many hash partitions the accounts are; 0: of four range partitions")
)

// opening is the balance of an account at the beginning.
const opening = 1000

// bank has accounts in its own keyspace, between which clients transfer money.
type bank struct {
	*environment
	program string
	// commits is the number of committed transfers. failed is the number of transfers that ended
	// with an error.
	commits, failed atomic.Int64
	last            atomic.Pointer[error]
}

func account(i int) []byte { return fmt.Appendf(nil, "account-%08d", i) }

// TestDumpUnderTransactions dumps a keyspace again and again with the program, while clients
// transfer money between all of its keys. Every dump is complete, and its sum is right.
func TestDumpUnderTransactions(t *testing.T) {
	if *dumps == 0 {
		t.Skip("it runs with -dump.times (make dump-load)")
	}
	e := newEnvironment(t, 2*time.Hour, fleet.Layout{Cores: 1, Nodes: 3})
	b := &bank{environment: e, program: e.cluster.Nodes[0].Binary}
	starting, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	e.must(e.cluster.Start(starting), "start the cluster")
	client, err := kv.Open(e.ctx, e.cluster.Endpoints())
	e.must(err, "open a client")
	defer client.Close()
	layout := kv.Range(account(*dumpRows/4), account(*dumpRows/2), account(*dumpRows/4*3))
	if *dumpHash > 0 {
		layout = kv.Hash(*dumpHash)
	}
	_, err = client.CreateKeyspace(e.ctx, "bank", layout)
	e.must(err, "create the keyspace")
	b.load()

	stop := b.transfer()
	defer stop()
	e.wait(time.Minute, "transfers", func(context.Context) error {
		if b.commits.Load() < int64(*dumpClients) {
			return fmt.Errorf("%d were made", b.commits.Load())
		}
		return nil
	})
	var took []time.Duration
	bad := 0
	for i := range *dumps {
		before, began := b.commits.Load(), time.Now()
		err := b.dump()
		took = append(took, time.Since(began))
		e.Logf("dump %d took %v, beside %d transfers: %v", i+1, took[i].Round(time.Millisecond),
			b.commits.Load()-before, err)
		if err != nil {
			bad++
			e.Errorf("dump %d: %v", i+1, err)
		}
	}
	stop()
	slices.Sort(took)
	e.result("%d of %d dumps of %d rows under %d clients were complete, each sum right; a dump "+
		"took %v (median), %v (max)",
		*dumps-bad, *dumps, *dumpRows, *dumpClients, took[len(took)/2].Round(time.Millisecond),
		took[len(took)-1].Round(time.Millisecond))
	e.result("%d transfers, %d failed", b.commits.Load(), b.failed.Load())
	if why := b.last.Load(); why != nil {
		e.Errorf("%d transfers failed; the last: %v", b.failed.Load(), *why)
	}
}

// load opens the accounts.
func (b *bank) load() {
	var text bytes.Buffer
	for i := range *dumpRows {
		fmt.Fprintf(&text, "%s\t%d\n", account(i), opening)
	}
	path := filepath.Join(b.dir, "accounts.tsv")
	b.must(os.WriteFile(path, text.Bytes(), 0o644), "write the accounts")
	began := time.Now()
	out, err := exec.CommandContext(b.ctx, b.program, "load", "bank", path, "--quiet", "--timeout",
		"60s", "--endpoints",
		strings.Join(b.cluster.Endpoints(), ",")).CombinedOutput()
	b.must(err, "load %d accounts: %s", *dumpRows, out)
	b.Logf("%d accounts were loaded in %v", *dumpRows, time.Since(began).Round(time.Millisecond))
}

// transfer starts the clients; stop ends them.
func (b *bank) transfer() (stop func()) {
	const perClient = 16 // the number of callers that share a connection
	ctx, cancel := context.WithCancel(b.ctx)
	var running sync.WaitGroup
	var clients []*kv.Client
	for i := range *dumpClients {
		if i%perClient == 0 {
			client, err := kv.Open(b.ctx, b.cluster.Endpoints())
			b.must(err, "open a client")
			clients = append(clients, client)
		}
		client := clients[len(clients)-1]
		ks, random := client.Keyspace("bank"), rand.New(rand.NewPCG(1, uint64(i)))
		running.Go(func() {
			for ctx.Err() == nil {
				from := random.IntN(*dumpRows)
				to := (from + 1 + random.IntN(*dumpRows-1)) % *dumpRows
				err := move(ctx, client, ks, account(from), account(to), 1+random.IntN(10))
				switch {
				case err == nil:
					b.commits.Add(1)
				case ctx.Err() == nil:
					b.failed.Add(1)
					b.last.Store(&err)
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
		for _, client := range clients {
			if err := client.Close(); err != nil {
				b.Error(err)
			}
		}
	})
}

// move transfers an amount, or the whole balance if it is smaller.
func move(ctx context.Context, client *kv.Client, ks *kv.Keyspace, from, to []byte,
	amount int) error {
	_, err := client.Update(ctx, func(tx *kv.Txn) error {
		pairs, err := tx.BatchGet(ctx, ks, [][]byte{from, to})
		if err != nil {
			return err
		}
		var balances [2]int
		for i, pair := range pairs {
			if balances[i], err = strconv.Atoi(string(pair.Value)); err != nil {
				return err
			}
		}
		moved := min(amount, balances[0])
		if err := tx.Put(ks, from, strconv.AppendInt(nil, int64(balances[0]-moved),
			10)); err != nil {
			return err
		}
		return tx.Put(ks, to, strconv.AppendInt(nil, int64(balances[1]+moved), 10))
	})
	return err
}

// dump dumps the bank with the program, and adds up the balances.
func (b *bank) dump() error {
	command := exec.CommandContext(b.ctx, b.program, "dump", "bank", "--quiet", "--endpoints",
		strings.Join(b.cluster.Endpoints(), ","))
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	rows, sum, problem := addUp(bufio.NewScanner(out))
	if err := command.Wait(); err != nil {
		return fmt.Errorf("after %d rows: %w: %s", rows, err, strings.TrimSpace(said.String()))
	}
	switch {
	case problem != nil:
		return problem
	case rows != *dumpRows:
		return fmt.Errorf("it has %d rows of %d", rows, *dumpRows)
	case sum != opening**dumpRows:
		return fmt.Errorf("its sum is %d, and not %d", sum, opening**dumpRows)
	}
	return nil
}

// addUp counts the rows of a dump and adds up their values. Every key must come once, in order.
func addUp(lines *bufio.Scanner) (rows, sum int, problem error) {
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), "\t")
		n, err := strconv.Atoi(value)
		if problem == nil && (err != nil || key != string(account(rows))) {
			problem = fmt.Errorf("row %d is %q", rows, lines.Text())
		}
		rows, sum = rows+1, sum+n
	}
	if problem == nil {
		problem = lines.Err()
	}
	return rows, sum, problem
}
