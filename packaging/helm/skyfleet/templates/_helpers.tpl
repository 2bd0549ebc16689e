{{- define "skyfleet.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "skyfleet.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "skyfleet.labels" -}}
{{ include "skyfleet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "skyfleet.account" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "skyfleet.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- define "skyfleet.podsIn" -}}
{{ .Values.provider.namespace | default .Release.Namespace }}
{{- end }}

{{- /* Who asks by another name is refused; nodes in the cluster ask by that of the service. */ -}}
{{- define "skyfleet.names" -}}
{{- $service := printf "%s.%s" (include "skyfleet.name" .) .Release.Namespace -}}
{{- $port := int .Values.service.port -}}
{{ join "," (concat .Values.names (list (printf "%s:%d" $service $port) (printf "%s.svc:%d" $service $port))) }}
{{- end }}

{{- define "skyfleet.probe" -}}
httpGet:
  path: /api/health
  port: http
  scheme: {{ ternary "HTTP" "HTTPS" .Values.proxy.enabled }}
  {{- with .Values.names }}
  httpHeaders:
    - name: Host
      value: {{ first . | quote }}
  {{- end }}
timeoutSeconds: 5
{{- end }}

{{- /* What the schema cannot say. */ -}}
{{- define "skyfleet.check" -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- if not .Values.database.existingSecret -}}
{{- fail (printf "replicas is %d, and several daemons need one PostgreSQL: name the secret with its address in database.existingSecret" (int .Values.replicas)) -}}
{{- end -}}
{{- if not .Values.shared.existingClaim -}}
{{- fail (printf "replicas is %d, and several daemons need one folder: name a claim that is ReadWriteMany in shared.existingClaim" (int .Values.replicas)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.proxy.enabled (not .Values.proxy.networks) -}}
{{- fail "proxy.enabled is true and proxy.networks is empty, so that no proxy would be believed: give the networks that yours calls from, such as 10.0.0.0/8" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.enabled is true and ingress.host is empty: give the name that others use, such as sky.example.com" -}}
{{- end -}}
{{- range $name, $_ := .Values.settings -}}
{{- if has $name (list "SKY_HOME" "SKY_HOST" "SKY_PORT" "SKY_NAMES" "SKY_TLS_CERT" "SKY_TLS_KEY" "SKY_BEHIND_PROXY" "SKY_PROXIES" "SKY_DATABASE" "SKY_SHARED_FOLDER" "SKY_STOP_SECONDS") -}}
{{- fail (printf "settings.%s is set by this chart: use names, tls, proxy, database, shared or stopSeconds" $name) -}}
{{- end -}}
{{- end -}}
{{- end }}
