package doctor

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin/health"
)

const (
	// justStarted is the age up to which a server counts as just started.
	justStarted = time.Minute
	// slowSync is the duration of a sync that clients notice, whatever the other servers' disks do;
	// stalled is the duration of a write that counts as stalled.
	slowSync = 50 * time.Millisecond
	stalled  = time.Second
	// scarce is the share of a disk that should be free.
	scarce = 0.10
	// manyYoung is the number of files in the youngest level from which on reads are slow; deep is
	// the compaction debt from which on the disk does not keep up.
	manyYoung = 40
	deep      = 16 << 30
	// longWait is a wait for a processor that clients notice.
	longWait = 50 * time.Millisecond
	// throttledOften and pressed are the shares of time from which on a machine is short of
	// processors.
	throttledOften, pressed = 0.10, 0.60
	// fewFiles is the least limit of open files that a server should have.
	fewFiles = 65536
)

func (f *Facts) disks() Check {
	c := Check{Area: "disks"}
	least, count := uint64(1)<<63, 0
	for _, s := range f.answering() {
		for _, d := range s.Disks {
			count++
			least = min(least, d.Free)
			on := fmt.Sprintf("%s of %s", d.Directory, s.Address)
			switch {
			case d.Failure != "":
				c.add(Bad, on, "replace the disk if its log shows errors, and start the server again",
					"the %s's database has failed: %s", d.Part, d.Failure)
			case d.Writing >= stalled:
				c.add(Bad, on, "look at the disk: the system's log, and what else writes to it",
					"a write to the log stands still for %v", short(d.Writing))
			case d.Slow:
				c.add(Warning, on, "look at the disk: the system's log, and what else writes to it",
					"the disk is slow: the log takes %v to sync, many times longer than at other servers",
					short(d.LogSync))
			case d.LogSync >= slowSync:
				c.add(Warning, on, "use a disk with fast syncs (an SSD), and nothing else that writes to it",
					"the log takes %v to sync, and every write of a client takes longer", short(d.LogSync))
			}
			switch {
			case d.Full:
				c.add(Bad, on, "delete data or keyspaces, or add disk space",
					"the disk is full: %s are free, %s are kept in reserve (--min-free)", size(d.Free),
					size(d.Reserve))
			case d.Size > 0 && float64(d.Free) < scarce*float64(d.Size):
				c.add(Warning, on, "add disk space or nodes before data is refused",
					"%s of %s are free, and data is refused below %s", size(d.Free), size(d.Size),
					size(d.Reserve))
			}
			if d.LevelZeroFiles >= manyYoung || d.CompactionDebt >= deep {
				c.add(Warning, on, "let the disk do less: spread the load over more nodes",
					"compactions do not keep up: %d files of the youngest level, %s to rewrite",
					d.LevelZeroFiles, size(d.CompactionDebt))
			}
		}
	}
	if c.Looked = counted(count, "disk"); count > 0 {
		c.Looked += ", " + size(least) + " free at least"
	}
	return c
}

// processors names servers whose processors are slow compared to those of the others, and servers
// that are short of processors.
func (f *Facts) processors() Check {
	var delays []health.Delays
	longest := time.Duration(0)
	servers := f.answering()
	for i, s := range servers {
		delays = append(delays, health.Delays{Server: uint64(i), ProcessorWait: s.Processor.Wait})
		longest = max(longest, s.Processor.Wait)
	}
	c := Check{Area: "processors", Looked: fmt.Sprintf("waits of %v at most", short(longest))}
	const do = "look for what else runs on the machine, and at the limit of its control group"
	beside := map[uint64]bool{}
	for _, slow := range health.SlowProcessors(delays) {
		beside[slow.Server] = true
		c.add(Warning, servers[slow.Server].Address, do,
			"the processor is slow: the process waits %v for one, others wait %v", short(slow.Took),
			short(slow.Usual))
	}
	for i, s := range servers {
		p := s.Processor
		if p.Wait >= longWait && !beside[uint64(i)] {
			c.add(Warning, s.Address, do, "the process waits %v for a processor", short(p.Wait))
		}
		if p.Throttled >= throttledOften {
			c.add(Warning, s.Address, "raise the limit of the control group (CPUs of the container)",
				"its control group cut %.0f %% of its periods short, for its limit of processors",
				100*p.Throttled)
		}
		if p.Pressure >= pressed {
			c.add(Advice, s.Address, do, "some work of the machine waited for a processor in %.0f %% of "+
				"the last ten seconds", 100*p.Pressure)
		}
	}
	return c
}

func (f *Facts) memory() Check {
	c := Check{Area: "memory"}
	used := uint64(0)
	for _, s := range f.answering() {
		m := s.Memory
		used = max(used, m.Used)
		if m.GroupLimit > 0 && m.Limit > m.GroupLimit {
			c.add(Bad, s.Address, "lower --memory-limit to seven eighths of the control group's limit",
				"--memory-limit is %s, and its control group ends the process at %s", size(m.Limit),
				size(m.GroupLimit))
		}
		if m.Machine > 0 && m.Limit > m.Machine {
			c.add(Bad, s.Address, "lower --memory-limit", "--memory-limit is %s, and the machine has %s",
				size(m.Limit), size(m.Machine))
		}
		if m.Limit > 0 && m.Used > m.Limit+m.Limit/8 {
			c.add(Warning, s.Address, "report this with \"tidemark debug zip\"",
				"the process uses %s, more than --memory-limit (%s)", size(m.Used), size(m.Limit))
		}
		if m.Pressure >= throttledOften {
			c.add(Warning, s.Address, "look for what else uses memory on the machine, or lower "+
				"--memory-limit", "all work of the machine waited for memory in %.0f %% of the last ten "+
				"seconds", 100*m.Pressure)
		}
	}
	c.Looked = size(used) + " used at most"
	return c
}

func (f *Facts) files() Check {
	c := Check{Area: "open files"}
	most := uint64(0)
	for _, s := range f.answering() {
		x := s.Files
		most = max(most, x.Open)
		const do = "raise the limit (ulimit -n, LimitNOFILE= of systemd)"
		switch {
		case x.Limit > 0 && x.Open > x.Limit*4/5:
			c.add(Bad, s.Address, do, "%d files are open, and %d are allowed", x.Open, x.Limit)
		case x.Limit > 0 && x.Limit < fewFiles:
			c.add(Advice, s.Address, do, "%d files are allowed, and %d are better", x.Limit, fewFiles)
		}
	}
	c.Looked = fmt.Sprintf("%d open at most", most)
	return c
}

// size formats a number of bytes for people.
func size(bytes uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	x, unit := float64(bytes), 0
	for x >= 1024 && unit < len(units)-1 {
		x, unit = x/1024, unit+1
	}
	if x >= 10 || unit == 0 {
		return fmt.Sprintf("%.0f %s", x, units[unit])
	}
	return fmt.Sprintf("%.1f %s", x, units[unit])
}

// short rounds a time for people.
func short(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
