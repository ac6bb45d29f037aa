package workloads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// Lists appends to lists by compare-and-swap. The value of a key is the whole list, so every read
// shows the whole history. Of two reads one is a prefix of the other. No read is shorter than what
// was known when the read began. No element is in a list twice, and no element whose append was
// refused is in a list. The lists change every Age.
type Lists struct {
	// Keys is the number of lists in use at a time, and of hash partitions.
	Keys     int
	Age      time.Duration
	Parallel int
	Pause    time.Duration

	windows driver.Windows[[]*list]
}

// list is what all clients together know of a list.
type list struct {
	key string
	mu  struct {
		sync.Mutex
		// known is the longest version of the list that any client has read or written.
		known []string
		// refused has the elements whose append certainly had no effect. tried has all other
		// elements.
		refused, tried map[string]bool
	}
}

const lists = "lists"

// Name implements Workload.
func (*Lists) Name() string { return lists }

// Clients implements Workload.
func (l *Lists) Clients() int { return l.Parallel }

// Setup implements Workload.
func (l *Lists) Setup(ctx context.Context, run *driver.Run) error {
	l.windows.Age = l.Age
	l.windows.Fresh = func(number int64) []*list {
		all := make([]*list, l.Keys)
		for i := range all {
			all[i] = &list{key: fmt.Sprintf("%s/%d/%d", lists, i, number)}
			all[i].mu.refused, all[i].mu.tried = make(map[string]bool), make(map[string]bool)
		}
		return all
	}
	return run.CreateKeyspace(ctx, lists, kv.Hash(l.Keys))
}

// Drive implements Workload.
func (l *Lists) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace(lists)
	closing := func(ctx context.Context, all []*list) error { return l.close(ctx, run, ks, all) }
	for n := 0; run.Rest(ctx, random, l.Pause); n++ {
		if !l.windows.CloseDue(ctx, run, closing) {
			continue
		}
		w := l.windows.Enter(run.Elapsed())
		attempt, cancel := driver.Patience(ctx, random)
		x := w.State[random.IntN(l.Keys)]
		elements, version, err := x.read(attempt, run, ks)
		run.Count("list read", err)
		if err == nil && random.IntN(3) > 0 {
			run.Count("append", x.append(attempt, run, ks, elements, version,
				fmt.Sprintf("%d.%d", number, n)))
		}
		cancel()
		l.windows.Leave(w)
	}
}

func (x *list) read(ctx context.Context, run *driver.Run, ks *driver.Keyspace) ([]string,
	kv.Timestamp, error) {
	x.mu.Lock()
	floor := len(x.mu.known)
	x.mu.Unlock()
	pair, err := ks.Get(ctx, []byte(x.key))
	if err := driver.IgnoreNotFound(err); err != nil {
		return nil, pair.Version, err
	}
	var elements []string
	if err == nil {
		elements = strings.Split(string(pair.Value), " ")
	}
	if err := x.check(floor, elements); err != nil {
		run.Violation("list %s: %v", x.key, err)
	}
	return elements, pair.Version, nil
}

// append tries once to append an element to the list as it was read.
func (x *list) append(ctx context.Context, run *driver.Run, ks *driver.Keyspace, elements []string,
	version kv.Timestamp, element string) error {
	expect := kv.ExpectAbsent()
	if len(elements) > 0 {
		expect = kv.ExpectVersion(version)
		if len(elements)%2 == 0 {
			expect = kv.ExpectValue([]byte(strings.Join(elements, " ")))
		}
	}
	longer := append(slices.Clip(elements), element)
	x.mu.Lock()
	x.mu.tried[element] = true
	x.mu.Unlock()
	swap, err := ks.CompareAndSwap(ctx, []byte(x.key), expect,
		kv.Set([]byte(strings.Join(longer, " "))))
	if driver.Unknown(err) {
		return err
	}
	if err == nil && swap.Swapped {
		if err := x.check(0, longer); err != nil {
			run.Violation("list %s: an acknowledged append of %s: %v", x.key, element, err)
		}
		return nil
	}
	x.mu.Lock()
	x.mu.refused[element] = true
	there := slices.Contains(x.mu.known, element)
	x.mu.Unlock()
	if there {
		run.Violation("list %s: the append of %s was refused, and it has been read", x.key, element)
	}
	return err
}

// check compares a read with what is known. floor is the number of elements that were known when
// the read began.
func (x *list) check(floor int, elements []string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	common := min(len(elements), len(x.mu.known))
	switch {
	case len(elements) < floor:
		return fmt.Errorf("a stale reading has %d elements, %d were known before it began: %q",
			len(elements), floor, elements)
	case !slices.Equal(elements[:common], x.mu.known[:common]):
		return fmt.Errorf("neither of two readings is the beginning of the other: %q and %q",
			elements, x.mu.known)
	case common == len(elements):
		return nil
	}
	for i, e := range elements[common:] {
		switch {
		case !x.mu.tried[e]:
			return fmt.Errorf("no client appended %q: %q", e, elements)
		case x.mu.refused[e]:
			return fmt.Errorf("the append of %s was refused, and it is there: %q", e, elements)
		case slices.Contains(elements[:common+i], e):
			return fmt.Errorf("%s is there twice: %q", e, elements)
		}
	}
	x.mu.known = slices.Clone(elements)
	return nil
}

// close reads the lists of a window for the last time.
func (l *Lists) close(ctx context.Context, run *driver.Run, ks *driver.Keyspace,
	all []*list) error {
	var errs []error
	for _, x := range all {
		_, _, err := x.read(ctx, run, ks)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Check implements Workload.
func (l *Lists) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	ks := client.Keyspace(lists)
	return l.windows.CloseAll(ctx, func(ctx context.Context,
		all []*list) error {
		return l.close(ctx, run, ks, all)
	})
}
