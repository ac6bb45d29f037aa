package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Kind is a kind of operation, as the report lists it.
type Kind int

const (
	// Read gets one key.
	Read Kind = iota
	// Update puts a key that exists.
	Update
	// Insert puts a new key.
	Insert
	// Scan reads consecutive rows.
	Scan
	// ReadModifyWrite gets a key and puts it again. Its latency is that of both together.
	ReadModifyWrite
	// Transaction is a transaction of Mixed.
	Transaction
	// Transfer moves money between two accounts of Bank. Audit adds up all accounts.
	Transfer
	Audit
	// Increment adds one to a counter of Counters.
	Increment

	kinds
)

var kindNames = [kinds]string{"read", "update", "insert", "scan", "read-modify-write",
	"transaction", "transfer", "audit", "increment"}

func (k Kind) String() string {
	if k < 0 || k >= kinds {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return kindNames[k]
}

// Workload is a mix of operations over a distribution of keys.
type Workload struct {
	Name string
	// Mix holds the share of each kind; the shares add up to 1.
	Mix  [kinds]float64
	Keys Distribution
	// ScanRows is the number of rows of a scan. With ScanRandom it is the maximum of a uniform random
	// number from 1.
	ScanRows   int
	ScanRandom bool
	// Preload is set if the records must exist before the run.
	Preload bool
}

// Put writes keys of the record range. All keys are equally likely.
func Put() Workload {
	return Workload{Name: "put", Mix: mixOf(Update, 1), Keys: Uniform}
}

// Get reads existing keys. All keys are equally likely.
func Get() Workload {
	return Workload{Name: "get", Mix: mixOf(Read, 1), Keys: Uniform, Preload: true}
}

// ScanOf reads a number of consecutive rows, starting at random existing keys.
func ScanOf(rows int) Workload {
	return Workload{Name: "scan", Mix: mixOf(Scan, 1), Keys: Uniform, ScanRows: rows, Preload: true}
}

// YCSB returns one of the standard workloads "a" to "f":
//
//	a  update heavy       50 % read, 50 % update                zipfian
//	b  read mostly        95 % read,  5 % update                zipfian
//	c  read only         100 % read                             zipfian
//	d  read latest        95 % read,  5 % insert                latest
//	e  short ranges       95 % scan (1 to 100 rows), 5 % insert zipfian
//	f  read-modify-write  50 % read, 50 % read-modify-write     zipfian
func YCSB(letter string) (Workload, error) {
	w := Workload{Name: "ycsb-" + strings.ToLower(letter), Keys: Zipfian, Preload: true}
	switch strings.ToLower(letter) {
	case "a":
		w.Mix = mixOf(Read, 0.5, Update, 0.5)
	case "b":
		w.Mix = mixOf(Read, 0.95, Update, 0.05)
	case "c":
		w.Mix = mixOf(Read, 1)
	case "d":
		w.Mix = mixOf(Read, 0.95, Insert, 0.05)
		w.Keys = Latest
	case "e":
		w.Mix = mixOf(Scan, 0.95, Insert, 0.05)
		w.ScanRows, w.ScanRandom = 100, true
	case "f":
		w.Mix = mixOf(Read, 0.5, ReadModifyWrite, 0.5)
	default:
		return Workload{}, fmt.Errorf("unknown YCSB workload %q: use one of a, b, c, d, e, f",
			letter)
	}
	return w, nil
}

// mixOf takes alternating kinds and shares.
func mixOf(pairs ...any) (mix [kinds]float64) {
	for i := 0; i < len(pairs); i += 2 {
		share, ok := pairs[i+1].(float64)
		if !ok {
			share = float64(pairs[i+1].(int))
		}
		mix[pairs[i].(Kind)] = share
	}
	return mix
}

// draw picks a kind by its share.
func (w *Workload) draw(r *rand.Rand) Kind {
	x := r.Float64()
	last := Read
	for kind, share := range w.Mix {
		if share == 0 {
			continue
		}
		if x < share {
			return Kind(kind)
		}
		x -= share
		last = Kind(kind)
	}
	return last // because of rounding
}

func (w *Workload) rows(r *rand.Rand) int {
	if w.ScanRandom {
		return 1 + r.IntN(w.ScanRows)
	}
	return w.ScanRows
}

func (w *Workload) validate() error {
	sum := 0.0
	for _, share := range w.Mix {
		if share < 0 {
			return fmt.Errorf("workload %s: a share is negative", w.Name)
		}
		sum += share
	}
	if sum < 0.999 || sum > 1.001 {
		return fmt.Errorf("workload %s: the shares add up to %g, not 1", w.Name, sum)
	}
	if w.Mix[Scan] > 0 && w.ScanRows <= 0 {
		return invalid("ScanRows", w.ScanRows, "it is at least 1")
	}
	return nil
}
