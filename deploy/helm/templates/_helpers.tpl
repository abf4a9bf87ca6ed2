{{/* The name of this release's objects. */}}
{{- define "attendant.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "attendant.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "attendant.labels" -}}
{{ include "attendant.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- define "attendant.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "attendant.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* The name of the Secret with the URL of the database; empty without one. */}}
{{- define "attendant.stateSecret" -}}
{{- if .Values.state.existingSecret -}}
{{- .Values.state.existingSecret -}}
{{- else if .Values.state.url -}}
{{- printf "%s-state" (include "attendant.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/*
What the other templates need of the server's configuration, as JSON. All problems are reported together.
  server: the configuration that pods read
  port, operationsPort
  scaling: autoscaling of the first group; absent without one
  pods: the most pods there can be
  cpus, memoryMiB: of a pod
  graceSeconds: for the preStop hook, requests in progress, and the end of the processes
*/}}
{{- define "attendant.settings" -}}
{{- $server := .Values.server | fromYaml -}}
{{- if or $server.Error (not $server.groups) -}}
{{- fail "server: this is no configuration with groups; give the file that `attendant serve --config` reads: --set-file server=server.yaml" -}}
{{- end -}}
{{- $problems := list -}}
{{- $scaling := (first $server.groups).autoscaling -}}
{{- $pods := int .Values.replicas -}}
{{- if $scaling -}}
{{- if gt $pods 1 -}}
{{- $problems = append $problems "replicas: the first group of server has autoscaling, which sets the number of pods; leave one of them out" -}}
{{- end -}}
{{- $pods = int $scaling.max_replicas -}}
{{- end -}}
{{- $database := include "attendant.stateSecret" . -}}
{{- if and (gt $pods 1) (not $database) -}}
{{- $problems = append $problems (printf "%d pods need state that they share, or a document that is sent to one is not found by another: set state.existingSecret to a Secret with the URL of a PostgreSQL database, or state.url to this URL" $pods) -}}
{{- end -}}
{{- if and .Values.state.url .Values.state.existingSecret -}}
{{- $problems = append $problems "state.url and state.existingSecret: the URL is in one of them; leave the other out" -}}
{{- end -}}
{{- if and .Values.state.url (not (or (hasPrefix "postgresql://" .Values.state.url) (hasPrefix "postgres://" .Values.state.url))) -}}
{{- $problems = append $problems "state.url: this is no URL of a PostgreSQL database, postgresql://USER:PASSWORD@HOST/DATABASE" -}}
{{- end -}}
{{- if and $database .Values.state.claim -}}
{{- $problems = append $problems "state.claim: the state is in the database; leave the claim out" -}}
{{- end -}}
{{- if and .Values.strategy .Values.state.claim -}}
{{- $problems = append $problems "strategy: with state.claim it is Recreate, since two servers cannot share the files; leave one of them out" -}}
{{- end -}}
{{- if contains "://" (toString $server.state) -}}
{{- $problems = append $problems "server: state is the URL of a database, and a ConfigMap would hold its password; give it as state.existingSecret or state.url, and leave it out of server" -}}
{{- end -}}
{{- if and .Values.models.claim .Values.models.volume -}}
{{- $problems = append $problems "models.claim and models.volume: the bundles are in one of them; leave the other out" -}}
{{- end -}}
{{- if and .Values.models.pull .Values.models.volume -}}
{{- $problems = append $problems "models.pull: models are fetched into models.claim or into a volume of the pod; leave models.volume out" -}}
{{- end -}}
{{- if $problems -}}
{{- fail (join "\n" $problems) -}}
{{- end -}}
{{- $cpus := 0 -}}
{{- $replicas := 0 -}}
{{- range $server.groups -}}
{{- $count := hasKey . "autoscaling" | ternary 1 (.replicas | default 1) | int -}}
{{- $cpus = add $cpus (mul (.cpus_per_replica | default 1 | int) $count) -}}
{{- $replicas = add $replicas $count -}}
{{- $_ := unset . "autoscaling" -}}
{{- end -}}
{{- $port := $server.port | default 8000 | int -}}
{{- $operationsPort := $server.operations_port | default (add $port 1) | int -}}
{{- $_ := set $server "host" "0.0.0.0" -}}
{{- $_ := set $server "operations_port" $operationsPort -}}
{{- $access := $server.access | default dict -}}
{{- if .Values.keys.existingSecret -}}
{{- $_ := set $access "keys" "/etc/attendant/keys.json" -}}
{{- end -}}
{{- if .Values.operators.existingSecret -}}
{{- $_ := set $access "operators" "/etc/attendant/operators.json" -}}
{{- end -}}
{{- if $access -}}
{{- $_ := set $server "access" $access -}}
{{- end -}}
{{- if .Values.tls.existingSecret -}}
{{- $_ := set $server "tls" (dict "certificate" "/etc/attendant/tls.crt" "key" "/etc/attendant/tls.key") -}}
{{- end -}}
{{- dict
  "server" $server
  "port" $port
  "operationsPort" $operationsPort
  "scaling" $scaling
  "pods" $pods
  "cpus" $cpus
  "memoryMiB" (mul $replicas (int .Values.memoryMiB))
  "graceSeconds" ($server.drain_seconds | default 30 | ceil | int | add 35)
| toJson -}}
{{- end -}}

{{/* The same for every container: `restricted` of the Pod Security Standards, and a root that cannot be written to. */}}
{{- define "attendant.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Of the server, and of the init containers, which have them before it. */}}
{{- define "attendant.resources" -}}
{{- $settings := include "attendant.settings" . | fromJson -}}
{{- if .Values.resources -}}
{{- toYaml .Values.resources -}}
{{- else -}}
{{- $quantities := dict "cpu" (toString $settings.cpus) "memory" (printf "%dMi" (int $settings.memoryMiB)) -}}
{{- if .Values.gpus -}}
{{- $_ := set $quantities "nvidia.com/gpu" (toString .Values.gpus) -}}
{{- end -}}
{{- dict "requests" $quantities "limits" $quantities | toYaml -}}
{{- end -}}
{{- end -}}
