package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is USER_HZ, the unit of processor times in /proc. It is 100 on every Linux that Go
// supports.
const ticksPerSecond = 100

// Usage is the resource usage of a process since its start.
type Usage struct {
	// UserSeconds and SystemSeconds are processor time.
	UserSeconds, SystemSeconds float64
	// ResidentBytes is the resident memory at present.
	ResidentBytes int64
}

// CPUSeconds is the sum of user and system time.
func (u Usage) CPUSeconds() float64 { return u.UserSeconds + u.SystemSeconds }

// ReadUsage reads /proc/PID/stat. It works on Linux only.
func ReadUsage(pid int) (Usage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	usage, err := parseStat(string(text), os.Getpagesize())
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	return usage, nil
}

// Usage returns the resource usage of this process.
func (p *Process) Usage() (Usage, error) { return ReadUsage(p.PID()) }

// parseStat parses one line of /proc/PID/stat: see proc(5). The second field is the program's name
// in parentheses, and may contain any characters. So the fields are counted from the last closing
// parenthesis.
func parseStat(line string, pageSize int) (Usage, error) {
	closing := strings.LastIndexByte(line, ')')
	if closing < 0 {
		return Usage{}, fmt.Errorf("stat line without a program name: %q", line)
	}
	fields := strings.Fields(line[closing+1:])
	// Field 3 of the line is fields[0].
	const user, system, resident = 14 - 3, 15 - 3, 24 - 3
	if len(fields) <= resident {
		return Usage{}, fmt.Errorf("stat line with %d fields, need %d: %q", len(fields)+2,
			resident+3, line)
	}
	var values [3]int64
	for i, field := range []int{user, system, resident} {
		value, err := strconv.ParseInt(fields[field], 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("field %d of the stat line: %w", field+3, err)
		}
		values[i] = value
	}
	return Usage{
		UserSeconds:   float64(values[0]) / ticksPerSecond,
		SystemSeconds: float64(values[1]) / ticksPerSecond,
		ResidentBytes: values[2] * int64(pageSize),
	}, nil
}
