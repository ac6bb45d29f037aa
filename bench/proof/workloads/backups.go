package workloads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// Backups reads a whole keyspace while transactions commit over its partitions: by scans with small
// pages and no fixed timestamp, by scans of a part, by dumps, and by counts. The transactions move
// money between rows, so every reader of all rows must find all rows and the same total. Backups
// does for readers outside of transactions what Bank does for transactions. Besides the rows there
// are notes. A batch writes all notes at a time, so every reader finds the same text in all of
// them.
//
// A read may take long, but must succeed: a backup must not fail because there is traffic.
type Backups struct {
	// Keyspace is created with hash Partitions, or split into four ranges if Partitions is 0.
	Keyspace   string
	Partitions int
	// Rows is the number of rows.
	Rows int
	// Writers is the number of clients that move money. Readers is the number of clients that read.
	Writers, Readers int
	Pause, ReadPause time.Duration
}

const (
	// backupPatience is the deadline of operations that read or write much.
	backupPatience = 10 * time.Second
	// spread is the number of rows to which some transactions spread money.
	spread = 12
	// notes is the number of notes.
	notes = 6
)

// Name implements Workload.
func (b *Backups) Name() string { return b.Keyspace }

// Clients implements Workload.
func (b *Backups) Clients() int { return b.Writers + b.Readers }

func (b *Backups) key(i int) []byte { return fmt.Appendf(nil, "row%03d", i) }

// note is the key of a note. The notes of a range keyspace lie between the rows.
func (b *Backups) note(i int) []byte { return fmt.Appendf(nil, "row%03d-note", i*b.Rows/notes) }

// isNote says whether a key is the key of a note.
func isNote(key []byte) bool { return bytes.HasSuffix(key, []byte("-note")) }

// Setup implements Workload.
func (b *Backups) Setup(ctx context.Context, run *driver.Run) error {
	layout := kv.Range(b.key(b.Rows/4), b.key(b.Rows/2), b.key(b.Rows*3/4))
	if b.Partitions > 0 {
		layout = kv.Hash(b.Partitions)
	}
	if err := run.CreateKeyspace(ctx, b.Keyspace, layout); err != nil {
		return err
	}
	client, hangUp, err := run.Connect(ctx, b.Name())
	if err != nil {
		return err
	}
	defer hangUp()
	ks := client.Keyspace(b.Keyspace).SDK()
	_, err = client.Update(ctx, "update", func(tx *kv.Txn) (err error) {
		for i := range b.Rows {
			err = errors.Join(err, tx.Put(ks, b.key(i), strconv.AppendInt(nil, opening, 10)))
		}
		return err
	})
	return err
}

// Drive implements Workload.
func (b *Backups) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace(b.Keyspace)
	if number < b.Writers {
		for n := 0; run.Keep(ctx, random, b.Pause); n++ {
			attempt, cancel := context.WithTimeout(ctx, backupPatience)
			if random.IntN(8) == 0 {
				run.Count("backup notes", b.annotate(attempt, ks, fmt.Sprintf("%d.%d", number, n)))
			} else {
				run.Count("backup transfer", b.move(attempt, client, ks.SDK(), random))
			}
			cancel()
		}
		return
	}
	for run.Keep(ctx, random, b.ReadPause) {
		attempt, cancel := context.WithTimeout(ctx, backupPatience)
		run.Count("backup", b.read(attempt, run, ks, random))
		cancel()
	}
}

// annotate writes all notes.
func (b *Backups) annotate(ctx context.Context, ks *driver.Keyspace, text string) error {
	pairs := make([]kv.Pair, notes)
	for i := range pairs {
		pairs[i] = kv.Pair{Key: b.note(i), Value: []byte(text)}
	}
	_, err := ks.BatchPut(ctx, pairs)
	return err
}

// move takes money from one row and gives it to others: to one, or to many.
func (b *Backups) move(ctx context.Context, client *driver.Client, ks *kv.Keyspace,
	random *rand.Rand) error {
	kind, rows := "update", random.Perm(b.Rows)[:2]
	if random.IntN(8) == 0 {
		kind, rows = "large update", random.Perm(b.Rows)[:spread+1]
	}
	_, err := client.Update(ctx, kind, func(tx *kv.Txn) error {
		var keys [][]byte
		for _, i := range rows {
			keys = append(keys, b.key(i))
		}
		pairs, err := tx.BatchGet(ctx, ks, keys)
		if err != nil {
			return err
		}
		balances := make([]int, len(pairs))
		for i, pair := range pairs {
			if balances[i], err = strconv.Atoi(string(pair.Value)); err != nil {
				return err
			}
		}
		for i := range balances[1:] {
			balances[0]--
			balances[i+1]++
		}
		for i, balance := range balances {
			err = errors.Join(err, tx.Put(ks, keys[i], strconv.AppendInt(nil, int64(balance), 10)))
		}
		return err
	})
	return err
}

// read reads everything, in one of several ways.
func (b *Backups) read(ctx context.Context, run *driver.Run, ks *driver.Keyspace,
	random *rand.Rand) error {
	switch n := random.IntN(8); {
	case n == 0:
		count, err := ks.Count(ctx)
		// There are no notes at first.
		if rows := uint64(b.Rows); err == nil && count != rows && count != rows+notes {
			run.Violation("%s: a count of %d rows and %d notes is %d", b.Keyspace, b.Rows, notes,
				count)
		}
		return err
	case n == 1:
		return b.part(ctx, run, ks, random)
	case n < 4:
		return b.add(run, "dump", ks.Dump(ctx))
	}
	options := []kv.ScanOption{kv.PageSize(1 + random.IntN(5))}
	if random.IntN(2) == 0 {
		options = append(options, kv.Reverse())
	}
	return b.add(run, "scan", ks.Scan(ctx, options...))
}

// part reads some neighbouring rows.
func (b *Backups) part(ctx context.Context, run *driver.Run, ks *driver.Keyspace,
	random *rand.Rand) error {
	from, to := random.IntN(b.Rows), random.IntN(b.Rows)
	from, to = min(from, to), max(from, to)
	found := 0
	for pair, err := range ks.Scan(ctx, kv.From(b.key(from)), kv.To(b.key(to)),
		kv.PageSize(1+random.IntN(5))) {
		if err != nil {
			return err
		}
		if !isNote(pair.Key) {
			found++
		}
	}
	if found != to-from {
		run.Violation("%s: a scan of %d rows found %d", b.Keyspace, to-from, found)
	}
	return nil
}

// add adds up the money that a read of all rows found.
func (b *Backups) add(run *driver.Run, how string, pairs func(func(kv.Pair, error) bool)) error {
	total, found := 0, 0
	var last []byte
	var texts []string
	reverse := false
	for pair, err := range pairs {
		if err != nil {
			return err
		}
		if isNote(pair.Key) {
			texts = append(texts, string(pair.Value))
			continue
		}
		balance, err := strconv.Atoi(string(pair.Value))
		if err != nil {
			return err
		}
		if found == 1 {
			reverse = bytes.Compare(pair.Key, last) < 0
		}
		if c := bytes.Compare(last, pair.Key); found > 0 && (c == 0 || c > 0 != reverse) {
			run.Violation("%s: a %s found %q after %q", b.Keyspace, how, pair.Key, last)
		}
		total, found, last = total+balance, found+1, pair.Key
	}
	if found != b.Rows || total != opening*b.Rows {
		run.Violation("%s: a %s found %d rows with %d, and there are %d with %d", b.Keyspace, how,
			found, total, b.Rows, opening*b.Rows)
	}
	if len(texts) != 0 && (len(texts) != notes || len(slices.Compact(texts)) != 1) {
		run.Violation("%s: a %s found the notes %q", b.Keyspace, how, texts)
	}
	return nil
}

// Check implements Workload.
func (b *Backups) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	return b.add(run, "dump", client.Keyspace(b.Keyspace).Dump(ctx))
}
