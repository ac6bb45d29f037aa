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

// Schedule is all that happens to a cluster in one run, known before it begins.
type Schedule struct {
	// Seed gives the cluster and the workloads.
	Seed uint64
	// Transactions has the seed run workloads of transactions.
	Transactions bool
	// Duration is how much virtual time faults and load have.
	Duration time.Duration
	// Faults are in the order of their times.
	Faults []Fault
}

// String is the schedule as text, which ParseSchedule reads: a line each for seed, duration, the
// word transactions if it has them, and the faults.
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

// ParseSchedule reads what Schedule.String wrote. Empty lines, and what follows a #, are left out.
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

// Draw makes the schedule of a seed: storms, with calm between them. A storm is one of the themes;
// the seed decides how far apart they are. transactions says which workloads the seed has.
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
	// The first storm comes soon: a short run has one too.
	for at := d.Between(time.Second, 5*time.Second); at < duration; at += 3*time.Second +
		time.Duration(random.ExpFloat64()*float64(apart)) {
		n := d.IntN(total)
		for _, t := range possible {
			if n -= t.weight; n < 0 {
				faults := t.draw(d, at)
				s.Faults = append(s.Faults, faults...)
				if d.Epochs {
					// One at a time: two of three servers are a majority, and none would succeed
					// them.
					at = max(at, end(faults)-2*time.Second)
				}
				break
			}
		}
	}
	if d.Transactions && !d.Epochs {
		// Beside the others, and by dice of its own: all else is what it was before there was this
		// theme.
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

// coordinationApart is the mean time from one fault of the coordination store's leader to the next.
const coordinationApart = 45 * time.Second

// splitsApart is about how far apart the splits are that every seed has.
const splitsApart = 15 * time.Second

// mergesApart is about how far apart the merges are that every seed has.
const mergesApart = 12 * time.Second

// membersEvery: every so many seeds change the members of the core, if there are servers for it. A
// server is not wiped then, once it may be a member, and no node decommissioned.
const membersEvery = 3

// membersApart is the mean time from one change of the core's members to the next.
const membersApart = time.Minute

// unfinishedApart is the mean time from one storm of that theme to the next.
const unfinishedApart = 2 * time.Minute

// end is when the last of some faults ends.
func end(faults []Fault) (last time.Duration) {
	for _, f := range faults {
		last = max(last, f.At+f.For)
	}
	return last
}

// storms are the times at which something begins or ends: clients are busy then.
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
