package sim

import (
	"bufio"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
)

// Schedule has all faults of one run. It is known before the run begins.
type Schedule struct {
	// Seed determines the cluster and the workloads.
	Seed uint64
	// Transactions has the seed run workloads of transactions.
	Transactions bool
	// Duration is the virtual time in which faults and load happen.
	Duration time.Duration
	// Faults are sorted by their times.
	Faults []Fault
}

// String returns the schedule as text, which ParseSchedule reads: a line each for the seed, the
// duration, the word transactions if Transactions is set, and each fault.
func (s Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\nduration %v\n", s.Seed, s.Duration)
	if s.Transactions {
		fmt.Fprintln(&b, "transactions")
	}
	for _, f := range s.Faults {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// ParseSchedule reads the output of Schedule.String. It ignores empty lines, and text after a #.
func ParseSchedule(text string) (s Schedule, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "":
		case "seed":
			s.Seed, err = strconv.ParseUint(rest, 10, 64)
		case "transactions":
			s.Transactions = true
		case "duration":
			s.Duration, err = parseTime(rest)
		default:
			var f Fault
			f, err = ParseFault(strings.TrimSpace(line))
			s.Faults = append(s.Faults, f)
		}
		if err != nil {
			return s, err
		}
	}
	s.sort()
	return s, lines.Err()
}

func (s *Schedule) sort() {
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// Draw makes the schedule of a seed: storms, with calm between them. A storm is one of the themes.
// The seed decides the time between storms. transactions selects workloads with transactions.
func Draw(seed uint64, duration time.Duration, transactions bool) Schedule {
	s := Schedule{Seed: seed, Duration: duration, Transactions: transactions}
	random := rand.New(rand.NewPCG(seed, 1))
	d := &Dice{Rand: random}
	shapeOf(seed, transactions).tell(d)
	apart := time.Duration(d.Of(15, 30, 40, 60)) * time.Second
	if d.Epochs {
		apart = time.Second
	}
	possible := themesFor(d)
	total := 0
	for _, t := range possible {
		total += t.weight
	}
	// The first storm comes soon, so that a short run has one too.
	for at := d.Between(time.Second, 5*time.Second); at < duration; at += 3*time.Second +
		time.Duration(random.ExpFloat64()*float64(apart)) {
		n := d.IntN(total)
		for _, t := range possible {
			if n -= t.weight; n < 0 {
				faults := t.draw(d, at)
				s.Faults = append(s.Faults, faults...)
				if d.Epochs {
					// One storm at a time: if two of three servers are cut off, no majority is left
					// that could elect a successor.
					at = max(at, end(faults)-2*time.Second)
				}
				break
			}
		}
	}
	if d.Transactions && !d.Epochs {
		// These faults have their own random numbers, so that the rest of the schedule does not
		// depend on them.
		d.Rand = rand.New(rand.NewPCG(seed, 6))
		for at := d.Between(5*time.Second, time.Minute); at < duration; at += 10*time.Second +
			time.Duration(d.ExpFloat64()*float64(unfinishedApart)) {
			s.Faults = append(s.Faults, unfinished(d, at)...)
		}
	}
	if d.Members {
		d.Rand = rand.New(rand.NewPCG(seed, 10))
		for at := d.Between(2*time.Second, time.Minute); at < duration; at += 10*time.Second +
			time.Duration(d.ExpFloat64()*float64(membersApart)) {
			s.Faults = append(s.Faults, changesOfMembers.at(d, at))
		}
	}
	if !d.Epochs {
		d.Rand = rand.New(rand.NewPCG(seed, 12))
		for at := d.Between(time.Second, 10*time.Second); at < duration; at += 2*time.Second +
			time.Duration(d.ExpFloat64()*float64(splitsApart)) {
			s.Faults = append(s.Faults, splitting(d, at)...)
		}
		d.Rand = rand.New(rand.NewPCG(seed, 13))
		for at := d.Between(3*time.Second, 15*time.Second); at < duration; at += 2*time.Second +
			time.Duration(d.ExpFloat64()*float64(mergesApart)) {
			s.Faults = append(s.Faults, merging(d, at)...)
		}
	}
	if d.Coordination {
		d.Rand = rand.New(rand.NewPCG(seed, 15))
		for at := d.Between(3*time.Second, 20*time.Second); at < duration; at += 5*time.Second +
			time.Duration(d.ExpFloat64()*float64(coordinationApart)) {
			s.Faults = append(s.Faults, coordinationFails(d, at)...)
		}
	}
	s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool { return f.At >= duration })
	s.sort()
	return s
}

// coordinationApart is the mean time between two faults of the coordination store's leader.
const coordinationApart = 45 * time.Second

// splitsApart is about the time between two splits in seeds that are not about epochs.
const splitsApart = 15 * time.Second

// mergesApart is about the time between two merges in seeds that are not about epochs.
const mergesApart = 12 * time.Second

// membersEvery: one seed of this many changes the members of the core, if there are servers to add.
// In such a seed no server is wiped after the members have begun to change, and no node is
// decommissioned.
const membersEvery = 3

// membersApart is the mean time between two changes of the core's members.
const membersApart = time.Minute

// unfinishedApart is the mean time between two storms of the theme unfinished.
const unfinishedApart = 2 * time.Minute

// end returns the time when the last of the faults ends.
func end(faults []Fault) (last time.Duration) {
	for _, f := range faults {
		last = max(last, f.At+f.For)
	}
	return last
}

// storms returns the times around the begins and ends of faults: clients are busy at these times.
func (s Schedule) storms() []driver.Storm {
	const before, after = 300 * time.Millisecond, 1700 * time.Millisecond
	var all []driver.Storm
	for _, f := range s.Faults {
		all = append(all, driver.Storm{From: f.At - before, Until: f.At + after})
		if t, ok := f.Effect.(transfer); ok {
			all[len(all)-1].Until += min(time.Duration(t.Times)*t.Every, 10*time.Second)
		}
		if f.For > 0 {
			all = append(all, driver.Storm{From: f.At + f.For - before, Until: f.At + f.For +
				after})
		}
	}
	slices.SortFunc(all, func(a, b driver.Storm) int { return cmp.Compare(a.From, b.From) })
	var merged []driver.Storm
	for _, storm := range all {
		if n := len(merged); n > 0 && storm.From <= merged[n-1].Until {
			merged[n-1].Until = max(merged[n-1].Until, storm.Until)
			continue
		}
		merged = append(merged, storm)
	}
	return merged
}
