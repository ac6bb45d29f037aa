package replica

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A random history of transactions, in one or two phases, between plain writes and reads,
// elections, lost proposals and snapshots. Some clients die in the middle, requests come twice, and
// the questions of the replicas arrive late. Checked are:
//
//   - of each transaction all versions are there, at one timestamp, or none; all and at the
//     promised timestamp if it was told that it had
//     committed, none if it was told that it had not;
//   - what a committed transaction read is what the log says of its commit timestamp: serialisable
//     in the order of timestamps;
//   - a read of the latest state sees all that was acknowledged before it began;
//   - in the end nothing is locked, all replicas are alike, and the lock table of each is what the
//     engine says.
//
// The histories are those of transactionSeeds, and the same in every run. -replica.seeds adds some
// of random seeds, -rapid.seed runs that one only.
func TestRandomTransactions(t *testing.T) {
	seeds := transactionSeeds
	for range *moreSeeds {
		seeds = append(seeds, rand.Uint64())
	}
	if given := flag.Lookup("rapid.seed").Value.String(); given != "0" {
		seed, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			setFlag(t, "rapid.seed", strconv.FormatUint(seed, 10))
			if seed != seeds[0] {
				setFlag(t, "rapid.checks", "10")
			}
			randomTransactions(t, variant{})
		})
	}
}

// TestRandomTransactionsHoldSpans: the same, and every other transaction holds a span with all its
// keys before it reads. What it has read stays as it was for as long as the span is held.
func TestRandomTransactionsHoldSpans(t *testing.T) {
	randomTransactions(t, variant{holds: true})
}

// transactionSeeds are the seeds of histories. The first one gives as many as -rapid.checks says,
// each other one 10.
var transactionSeeds = []uint64{
	1,
	// A question about a transaction that an earlier leader had committed: the answer waits for the
	// clocks, and nothing may come between.
	7581248462352280456,
	2, 3, 4,
}

var moreSeeds = flag.Int("replica.seeds", 0,
	"run TestRandomTransactions with so many random seeds too")

// setFlag sets a flag until the test ends.
func setFlag(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	before := f.Value.String()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(before) })
}

// variant is what a history has besides.
type variant struct {
	// holds: every other transaction holds a span.
	holds bool
	// moments: moments are asked for, and read.
	moments bool
	// waitFor is for how many transactions a read waits at once; 0: as many as ever.
	waitFor int
}

func randomTransactions(t *testing.T, v variant) {
	rapid.Check(t, func(t *rapid.T) {
		h := &transactionHistory{history: newHistory(t), acknowledgedKeys: map[string]hlc.Timestamp{},
			holds: v.holds}
		defer h.c.close()
		for _, m := range h.c.members {
			m.node.locking.MaxBlockers = cmp.Or(v.waitFor, concurrency.DefaultMaxBlockers)
		}
		actions := map[string]func(*rapid.T){
			"go on":      h.goOn,
			"go on2":     h.goOn,
			"go on3":     h.goOn,
			"go on4":     h.goOn,
			"begin":      h.begin,
			"twice":      h.twice,
			"plain":      h.plain,
			"latest":     h.latest,
			"follow":     h.followAdmitted,
			"questions":  h.questions,
			"questions2": h.questions,
			"wait":       h.wait,
			"commit":     h.commit,
			"apply":      h.apply,
			"apply2":     h.apply,
			"drop":       h.drop,
			"elect":      h.elect,
			"lease":      h.lease,
			"confirm":    h.confirm,
			"snapshot":   h.snapshot,
			"clock": func(t *rapid.T) {
				ms := rapid.SampledFrom([]int{1, 5, 40}).Draw(t, "ms")
				h.advance(time.Duration(ms) * time.Millisecond)
			},
			"": h.check,
		}
		if v.moments {
			actions["moment"], actions["moment2"] = h.moment, h.moment
		}
		t.Repeat(actions)
		h.end()
	})
}

type transactionHistory struct {
	*history
	transactions []*simulated
	// acknowledgedKeys is the highest version of each key that was acknowledged.
	acknowledgedKeys map[string]hlc.Timestamp
	// answers are to be handed to their callers, when no lock is held.
	answers []func()
	count   int
	// holds: every other one holds a span.
	holds bool
}

func sorted[V any](m map[string]V) (sorted []string) {
	for key := range m {
		sorted = append(sorted, key)
	}
	slices.Sort(sorted)
	return sorted
}

// twice sends a request again that is on its way.
func (h *transactionHistory) twice(t *rapid.T) {
	var waiting []*simulated
	for _, x := range h.transactions {
		if !x.over && !x.dead && x.request != nil {
			waiting = append(waiting, x)
		}
	}
	if len(waiting) == 0 {
		t.Skip("none")
	}
	h.drive(rapid.SampledFrom(waiting).Draw(t, "transaction"))
}

// plain is a put or a delete outside of transactions; its client does not try again.
func (h *transactionHistory) plain(t *rapid.T) {
	client := rapid.IntRange(0, len(h.clients)-1).Draw(t, "client")
	s := &h.clients[client]
	s.sequence++
	q := &kvpb.Request{Id: s.sequence, Generation: 1, Term: h.c.term, Sequence: s.sequence,
		Session: wire.ToTimestamp(s.session)}
	key := drawKey(t)
	if rapid.Bool().Draw(t, "delete") {
		q.Command = &kvpb.Request_Delete{Delete: &kvpb.DeleteRequest{Key: key}}
	} else {
		q.Command = &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: key, Value: fmt.Appendf(nil, "p%d-%d",
			client, s.sequence)}}
	}
	h.send(h.leader, client, q, func(response *kvpb.Response) {
		if response.Error == nil {
			ts := hlc.Max(wire.FromTimestamp(response.GetPut().GetVersion()),
				wire.FromTimestamp(response.GetDelete().GetVersion()))
			h.acknowledgedKeys[string(key)] = hlc.Max(h.acknowledgedKeys[string(key)], ts)
		}
	})
	h.deliver()
}

// latest is a read of the latest state, of one key or all.
func (h *transactionHistory) latest(t *rapid.T) {
	client := rapid.IntRange(0, len(h.clients)-1).Draw(t, "client")
	q := &kvpb.Request{Id: 1, Generation: 1, Term: h.c.term}
	key := string(drawKey(t))
	seen := map[string]hlc.Timestamp{}
	for k, ts := range h.acknowledgedKeys {
		seen[k] = ts
	}
	context := rapid.Bool().Draw(t, "context")
	if rapid.Bool().Draw(t, "scan") {
		q.Command = &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{}}
	} else {
		g := &kvpb.GetRequest{Key: []byte(key)}
		if context {
			g.Context = &kvpb.ReadContext{}
		}
		q.Command = &kvpb.Request_Get{Get: g}
	}
	h.sendRead(t, h.target(t), client, q, func(response *kvpb.Response) {
		if response.GetGet() != nil && response.ReadAt != nil {
			h.readings = append(h.readings, reading{q, response})
		}
		switch r := response.Result.(type) {
		case *kvpb.Response_Get:
			// What is absent may have been deleted: then the timestamp tells, if it is given.
			if r.Get.Found && wire.FromTimestamp(r.Get.Version).Less(seen[key]) {
				h.fault("key %s: read %s, but %s was acknowledged before", key, describe(response),
					stamp(seen[key]))
			}
			if at := r.Get.At; at != nil {
				h.readings = append(h.readings,
					reading{&kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key),
						At: at}}}, response})
				if wire.FromTimestamp(at).Less(seen[key]) {
					h.fault("key %s: read %s, but %s was acknowledged before", key, describe(response),
						stamp(seen[key]))
				}
			}
		case *kvpb.Response_Scan:
			h.readings = append(h.readings, reading{q, response})
			for k, ts := range seen {
				if wire.FromTimestamp(r.Scan.At).Less(ts) {
					h.fault("scan at %s, but key %s at %s was acknowledged before", wireStamp(r.Scan.At),
						k, stamp(ts))
				}
			}
		}
	})
	h.deliver()
}

// followAdmitted is follow.
func (h *transactionHistory) followAdmitted(t *rapid.T) {
	h.follow(t)
	h.deliver()
}

// questions brings questions of the replicas to the leader; some are lost.
func (h *transactionHistory) questions(t *rapid.T) {
	h.ask(func() bool { return rapid.IntRange(0, 5).Draw(t, "lost") == 0 })
}

func (h *transactionHistory) ask(lost func() bool) {
	h.step++
	for _, m := range h.c.members {
		asked := m.pusher.take("")
		slices.SortStableFunc(asked, func(a, b testPush) int {
			return strings.Compare(string(a.request.Pushee.Id), string(b.request.Pushee.Id))
		})
		for _, a := range asked {
			if lost() {
				a.done(nil, errors.New("lost"))
				h.c.settle()
				continue
			}
			h.clients[0].sequence++
			q := &kvpb.Request{Id: 1, Generation: 1, Term: h.c.term, Sequence: h.clients[0].sequence,
				Command: &kvpb.Request_Push{Push: a.request}}
			h.send(h.leader, 0, q, func(response *kvpb.Response) {
				h.answers = append(h.answers, func() {
					if response.Error != nil {
						a.done(nil, errors.New(response.Error.Message))
					} else {
						a.done(response.GetPush().Status, nil)
					}
				})
			})
		}
	}
	h.deliver()
}

// deliver hands answers to their callers.
func (h *transactionHistory) deliver() {
	for {
		h.c.mu.Lock()
		answers := h.answers
		h.answers = nil
		h.c.mu.Unlock()
		if len(answers) == 0 {
			return
		}
		for _, answer := range answers {
			answer()
		}
		h.c.settle()
	}
}

// wait lets what waits ask the coordinators again, and the clocks pass what waits for them.
func (h *transactionHistory) wait(*rapid.T) {
	h.step++
	h.c.mu.Lock()
	h.c.waited += 300 * time.Millisecond
	h.c.mu.Unlock()
	for _, m := range h.c.members {
		m.ringTimers()
	}
	h.c.settle()
	h.deliver()
}
