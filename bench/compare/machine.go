package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// machine describes the machine of the measurements. Without it, figures cannot be interpreted.
type machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	MemoryMB   int    `json:"memory_mb"`
	Kernel     string `json:"kernel"`
	Filesystem string `json:"filesystem"`
	Go         string `json:"go"`
}

// describeMachine reads the description from Linux. Unknown values are "unknown".
func describeMachine(dir string) machine {
	return machine{
		CPU:        parseCPUModel(readText("/proc/cpuinfo")),
		Cores:      runtime.NumCPU(),
		MemoryMB:   parseMemory(readText("/proc/meminfo")),
		Kernel:     orUnknown(strings.TrimSpace(readText("/proc/sys/kernel/osrelease"))),
		Filesystem: parseFilesystem(readText("/proc/self/mounts"), dir),
		Go:         runtime.Version(),
	}
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores, %d MB, Linux %s, %s, %s", m.CPU, m.Cores, m.MemoryMB,
		m.Kernel, m.Filesystem, m.Go)
}

// readText returns a file's content. It is empty if the file cannot be read: the description is
// then incomplete.
func readText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

// parseCPUModel finds the first processor's name in /proc/cpuinfo.
func parseCPUModel(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		name, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(name) == "model name" {
			return orUnknown(strings.TrimSpace(value))
		}
	}
	return "unknown"
}

// parseMemory returns MemTotal of /proc/meminfo, in megabytes, or 0 if it is missing.
func parseMemory(meminfo string) int {
	for line := range strings.Lines(meminfo) {
		var kilobytes int
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kilobytes); n == 1 {
			return kilobytes / 1024
		}
	}
	return 0
}

// parseFilesystem returns the type and options of the mount that holds dir: the mount with the
// longest mount point that is a prefix of dir.
func parseFilesystem(mounts, dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "unknown"
	}
	best, description := -1, "unknown"
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		point := strings.ReplaceAll(fields[1], `\040`, " ")
		inside := point == "/" || dir == point || strings.HasPrefix(dir, point+"/")
		// If two mounts have the same point, the later one is on top.
		if inside && len(point) >= best {
			best = len(point)
			description = fmt.Sprintf("%s on %s (%s)", fields[2], fields[0], fields[3])
		}
	}
	return description
}
