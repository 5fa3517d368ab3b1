package docs_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert/yaml"
	"github.com/stretchr/testify/require"
)

// Each unit and manifest of the page is one that its manager can read. It leaves time for the grace of its command, for
// the 2 s after which a CMD that ignores SIGTERM is killed, and for the jobs that go back to a slow server.
func TestUnitsAndManifestsLeaveTimeForTheGrace(t *testing.T) {
	t.Parallel()
	var found []string
	for _, m := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(read(t, "deploy.md"), -1) {
		name, command, stop := deployed(t, m[1], m[2])
		found = append(found, name)
		grace := regexp.MustCompile(`^luatomic consume mail .*--grace (\S+) .*-- \S+$`).FindStringSubmatch(command)
		require.NotNil(t, grace, command)
		bound, err := time.ParseDuration(grace[1])
		require.NoError(t, err)
		require.GreaterOrEqual(t, stop, bound+10*time.Second, name)
	}
	require.Equal(t, []string{"systemd", "Kubernetes", "Compose", "Heroku"}, found)
}

// deployed reads a block of the page: whose it is, its command, and how long a stop may take.
func deployed(t *testing.T, language, text string) (name, command string, stop time.Duration) {
	t.Helper()
	switch language {
	case "ini":
		service := unit(t, text)["Service"]
		require.Equal(t, "mixed", service["KillMode"], "CMDs get no signal of the manager")
		seconds, err := strconv.Atoi(service["TimeoutStopSec"])
		require.NoError(t, err)
		command = strings.TrimPrefix(service["ExecStart"], "/usr/local/bin/")
		return "systemd", command, time.Duration(seconds) * time.Second
	case "procfile":
		process, command, ok := strings.Cut(strings.TrimSpace(text), ": ")
		require.True(t, ok)
		require.Regexp(t, `^[a-z]+$`, process)
		return "Heroku", command, 30 * time.Second
	}
	require.Equal(t, "yaml", language)
	var manifest struct {
		Kind     string
		Services map[string]struct {
			Command []string
			Stop    string `yaml:"stop_grace_period"`
		}
		Spec struct {
			Template struct {
				Spec struct {
					Seconds    int `yaml:"terminationGracePeriodSeconds"`
					Containers []struct{ Command []string }
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &manifest))
	if manifest.Kind == "Deployment" {
		pod := manifest.Spec.Template.Spec
		require.Len(t, pod.Containers, 1)
		return "Kubernetes", strings.Join(pod.Containers[0].Command, " "), time.Duration(pod.Seconds) * time.Second
	}
	service := manifest.Services["mail"]
	stop, err := time.ParseDuration(service.Stop)
	require.NoError(t, err)
	return "Compose", strings.Join(service.Command, " "), stop
}

// unit reads a unit of systemd: its sections with their settings.
func unit(t *testing.T, text string) map[string]map[string]string {
	t.Helper()
	sections := make(map[string]map[string]string)
	var section map[string]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = make(map[string]string)
			sections[strings.TrimSuffix(name, "]")] = section
			continue
		}
		if line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		require.True(t, ok, line)
		require.NotNil(t, section, line)
		require.NotContains(t, section, key)
		section[key] = value
	}
	return sections
}
