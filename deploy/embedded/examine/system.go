package examine

import (
	"bufio"
	"io/fs"
	"math"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
)

// system reads what Linux reports about a machine and this process, below a root directory. On
// other systems the files are missing, and the numbers are 0.
type system struct{ root fs.FS }

// lines calls do with the words of each line of a file, until do returns false.
func (s system) lines(name string, do func(words []string) (more bool)) {
	f, err := s.root.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		if !do(strings.Fields(scanner.Text())) {
			return
		}
	}
}

// processor fills in what the system reports about the processors.
func (s system) processor(p *diagnosispb.Processor) {
	p.Count, p.LimitMicro = uint32(runtime.NumCPU()), uint64(runtime.GOMAXPROCS(0))*1_000_000
	p.PressurePermille = s.pressure("cpu", "some")
	if group := s.group(); group != "" {
		var periods, throttled uint64
		s.lines(path.Join("sys/fs/cgroup", group, "cpu.stat"), func(words []string) bool {
			if len(words) == 2 {
				switch words[0] {
				case "nr_periods":
					periods = number(words[1])
				case "nr_throttled":
					throttled = number(words[1])
				}
			}
			return true
		})
		if periods > 0 {
			p.ThrottledPermille = uint32(1000 * min(throttled, periods) / periods)
		}
	}
}

// memory fills in what the system reports about memory.
func (s system) memory(m *diagnosispb.Memory) {
	s.lines("proc/meminfo", func(words []string) bool {
		if len(words) >= 2 {
			switch words[0] {
			case "MemTotal:":
				m.Machine = number(words[1]) << 10
			case "MemAvailable:":
				m.Available = number(words[1]) << 10
			}
		}
		return m.Machine == 0 || m.Available == 0
	})
	s.lines("proc/self/status", func(words []string) bool {
		if len(words) >= 2 && words[0] == "VmRSS:" {
			m.Used = number(words[1]) << 10
		}
		return m.Used == 0
	})
	m.PressurePermille = s.pressure("memory", "full")
}

// files returns the number of files that the process may have open, and the number that it has
// open.
func (s system) files() *diagnosispb.Files {
	f := &diagnosispb.Files{}
	s.lines("proc/self/limits", func(words []string) bool {
		if len(words) >= 5 && words[0] == "Max" && words[1] == "open" {
			if f.Limit = number(words[3]); words[3] == "unlimited" {
				f.Limit = math.MaxInt64
			}
			return false
		}
		return true
	})
	if open, err := fs.ReadDir(s.root, "proc/self/fd"); err == nil {
		f.Open = uint64(len(open))
	}
	return f
}

// pressure returns the share of the last ten seconds in which some work, or all work, has waited
// for a resource, in thousandths. of is "some" or "full".
func (s system) pressure(resource, of string) (permille uint32) {
	s.lines("proc/pressure/"+resource, func(words []string) bool {
		if len(words) < 2 || words[0] != of {
			return true
		}
		share, err := strconv.ParseFloat(strings.TrimPrefix(words[1], "avg10="), 64)
		if err == nil && share >= 0 && share <= 100 {
			permille = uint32(share * 10)
		}
		return false
	})
	return permille
}

// group returns the path of the process's control group. It is empty if there is no group of
// version 2.
func (s system) group() (group string) {
	s.lines("proc/self/cgroup", func(words []string) bool {
		if len(words) == 1 && strings.HasPrefix(words[0], "0::/") {
			group = strings.TrimPrefix(words[0], "0::/")
			if group == "" {
				group = "."
			}
		}
		return group == ""
	})
	return group
}

// number parses a number. It returns 0 if the word is not a number.
func number(word string) uint64 {
	n, _ := strconv.ParseUint(word, 10, 62)
	return n
}
